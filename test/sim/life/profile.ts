/** The subject of a life workload: which of the things that happen in the life of connections happen often in it. */
import type { ModelOpcode, WireOptions } from '@node-roce/sim';

/** How a session ends. The acting side is drawn. */
const ENDINGS = [
  /** All is done; where nothing is lost, a side closes as soon as it has polled the last message. */
  'finish',
  /** The queue pair is destroyed in the middle of it. */
  'destroy',
  /** The queue pair is reset in the middle of it, and connected to another. */
  'reset',
  /** The queue pair goes to the error state. */
  'fail',
  /** A region is deregistered that an own request still names. */
  'deregister-own',
  /** The region is deregistered that the peer reads and writes. */
  'deregister-exposed',
  /** The window goes that the peer reads and writes through. */
  'window',
] as const;
export type Ending = (typeof ENDINGS)[number];

export interface LifeProfile {
  /** Lanes at work at once, each with one session after another. */
  lanes: number;
  /** Services of the lanes, in turn. */
  services: readonly ('RC' | 'UC' | 'UD')[];
  /** Sessions of each lane, and requests of each side of one. */
  sessions: number;
  requests: readonly [least: number, most: number];
  kinds: readonly ModelOpcode[];
  longest: number;
  /** Endings, each as often as it is named. */
  endings: readonly Ending[];
  wires: readonly WireOptions[];
  /** Requests outstanding, drawn for each session. */
  depths: readonly number[];
  pathMtus: readonly number[];
  timeouts: readonly number[];
  minRnrTimers: readonly number[];
  maxRdAtomics: readonly number[];
  /** Chance that a request has a region of its own. */
  fresh: number;
  /** Chances, for a session, that the peer goes through a window, and that it receives through an SRQ. */
  window: number;
  srq: number;
  /** Chances, for each tick: that a link has no room for a while; that a side is drained; that its rate is limited. */
  block: number;
  drain: number;
  rate: number;
  /** Where nothing is lost, a side closes its queue pair in the turn in which it polls the last message. */
  closesAtOnce: boolean;
  /** Receives are posted one by one, late. */
  scarce: boolean;
  /** PSNs begin shortly before 2^24. */
  psnWraps: boolean;
  /** Indices at which rings begin; else 0. */
  firstIndices?: readonly number[];
  /** Least counts of a run of 20 seeds: each what the workload is for. */
  counts: Readonly<Record<string, number>>;
}

const DATA: readonly ModelOpcode[] = [
  'SEND',
  'SEND',
  'SEND_WITH_IMM',
  'RDMA_WRITE',
  'RDMA_WRITE',
  'RDMA_WRITE_WITH_IMM',
  'RDMA_READ',
  'RDMA_READ',
  'ATOMIC_FETCH_AND_ADD',
  'ATOMIC_CMP_AND_SWP',
  'ATOMIC_WRITE',
  'FLUSH',
];

/** Ways on which nothing is lost. */
const LOSSLESS: readonly WireOptions[] = [
  { delay: 5 },
  { delay: 10, reorder: 0.1 },
  { delay: 5, duplicate: 0.2, reorder: 0.1, reorderBy: 100 },
];
const LOSSY: readonly WireOptions[] = [
  { delay: 5, loss: 0.02 },
  { delay: 10, loss: 0.03, reorder: 0.05, duplicate: 0.05 },
  { delay: 20, loss: 0.01, duplicate: 0.2, reorderBy: 300 },
];

const BASE: LifeProfile = {
  lanes: 4,
  services: ['RC'],
  sessions: 5,
  requests: [5, 40],
  kinds: DATA,
  longest: 3000,
  endings: ['finish'],
  wires: [...LOSSLESS, ...LOSSY],
  depths: [4, 8, 16],
  pathMtus: [256, 1024, 4096],
  timeouts: [10, 11, 12],
  minRnrTimers: [1, 8, 14],
  maxRdAtomics: [1, 4, 16],
  fresh: 0.3,
  window: 0,
  srq: 0,
  block: 0,
  drain: 0,
  rate: 0,
  closesAtOnce: true,
  scarce: false,
  psnWraps: false,
  counts: {},
};

export const PROFILES = {
  /** Regions, windows and queue pairs go while packets are under way or wait for the link. */
  lifetimes: {
    ...BASE,
    endings: [
      'finish',
      'destroy',
      'destroy',
      'reset',
      'reset',
      'fail',
      'deregister-own',
      'deregister-exposed',
      'window',
    ],
    fresh: 0.6,
    window: 0.3,
    srq: 0.3,
    block: 0.03,
    counts: {
      'queue pairs destroyed with packets in flight': 20,
      'queue pairs reset with packets in flight': 20,
      'queue pairs connected again after reset': 20,
      'regions deregistered with requests outstanding': 20,
      'windows ended with requests outstanding': 2,
      'links without room': 20,
      'packets waited for the link when something ended': 5,
      'early packets kept': 300,
      probes: 100,
      'congestion notifications obeyed': 60,
    },
  },
  /** Queue pairs of UC and UD that end as those of `lifetimes` do, with reliable ones. */
  unreliable: {
    ...BASE,
    services: ['UC', 'UD', 'UC', 'UD', 'RC'],
    lanes: 5,
    sessions: 6,
    wires: [...LOSSLESS, { delay: 5, loss: 0.02 }],
    srq: 0.4,
    block: 0.03,
    counts: {
      'messages of UC': 400,
      'messages of UD': 400,
      'queue pairs of UC ended with packets in flight': 40,
      'queue pairs of UD ended with packets in flight': 40,
      'packets waited for the link when something ended': 20,
      'congestion notifications obeyed': 20,
    },
  },
  /** A side closes its queue pair in the turn in which it polls the last message; nothing is lost. */
  closing: {
    ...BASE,
    requests: [1, 12],
    sessions: 12,
    wires: LOSSLESS,
    block: 0.05,
    counts: {
      'closed in the turn of the last message': 100,
      'links without room': 20,
      'congestion notifications obeyed': 40,
    },
  },
  /** Receives that come late, with copies of packets and lost ACKs meanwhile. */
  rnr: {
    ...BASE,
    kinds: ['SEND', 'SEND', 'SEND_WITH_IMM', 'RDMA_WRITE_WITH_IMM', 'RDMA_WRITE', 'RDMA_READ'],
    longest: 1500,
    sessions: 3,
    wires: [
      { delay: 5, duplicate: 0.3, reorder: 0.2, reorderBy: 150 },
      { delay: 5, duplicate: 0.3, reorder: 0.3, reorderBy: 400, loss: 0.05 },
    ],
    minRnrTimers: [1, 8, 14, 20, 24, 0],
    timeouts: [9, 10, 12],
    fresh: 0.8,
    scarce: true,
    srq: 0.2,
    counts: {
      'RNR NAKs': 100,
      'copies of requests during an RNR wait': 40,
      'congestion notifications obeyed': 100,
    },
  },
  /** PSNs, and the indices of rings, that wrap in the middle of a session. */
  wraps: {
    ...BASE,
    requests: [20, 60],
    psnWraps: true,
    firstIndices: [0x7fff_fff0, 0x7fff_ffe0, 0xffff_fff0, 0x7fff_ffff],
    counts: {
      'PSNs wrapped': 100,
      'ring indices passed 2^31': 60,
      'ring indices passed 2^32': 20,
      'congestion notifications obeyed': 100,
    },
  },
  /** Attributes change in SQD; rates are limited and lifted. */
  draining: {
    ...BASE,
    requests: [20, 60],
    sessions: 3,
    kinds: [...DATA, 'RDMA_READ', 'ATOMIC_FETCH_AND_ADD', 'ATOMIC_FETCH_AND_ADD'],
    drain: 0.05,
    rate: 0.02,
    counts: {
      'attributes changed in SQD': 100,
      'attributes tried while draining': 10,
      'rates lifted': 20,
      'congestion notifications obeyed': 60,
    },
  },
  /** Many READs and atomics outstanding, and their answers lost. */
  reads: {
    ...BASE,
    kinds: [
      'RDMA_READ',
      'RDMA_READ',
      'ATOMIC_FETCH_AND_ADD',
      'ATOMIC_CMP_AND_SWP',
      'ATOMIC_FETCH_AND_ADD',
      'ATOMIC_WRITE',
      'FLUSH',
      'SEND',
    ],
    requests: [30, 80],
    depths: [32, 64],
    longest: 1200,
    maxRdAtomics: [8, 16, 32, 64],
    wires: [
      { delay: 5, loss: 0.06 },
      { delay: 5, duplicate: 0.3, reorder: 0.3, reorderBy: 200 },
    ],
    sessions: 3,
    counts: {
      'READs and atomics repeated': 200,
      'early packets kept': 300,
      probes: 100,
      'congestion notifications obeyed': 20,
    },
  },
} as const satisfies Record<string, LifeProfile>;

export type LifeName = keyof typeof PROFILES;
