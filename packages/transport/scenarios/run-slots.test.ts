/**
 * Batches with run slots while the program and the peer change what they are made of: the link takes them in parts and refuses packets, queue pairs
 * fail, drain, are reset, resized and slowed down, regions go away and move. Packets, completions and counters are those without run slots.
 *
 *   ROCE_RUN_SEEDS=3000 npx vitest run packages/transport/scenarios/run-slots
 */
import { createRandom, NakCode, Opcode, Transport } from '@node-roce/wire';
import { expect, test } from 'vitest';
import {
  FRAGMENT_WORDS,
  type QpAttr,
  type QpCreated,
  type QpType,
  runOf,
  SendFlags,
  setReach,
  splitRun,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
  transition,
  unfoldRuns,
} from '../src/index.ts';
import { ByHand } from '../testing/by-hand.ts';
import { addressOf, type Completion, type WorkInit } from '../testing/pair.ts';

const SEEDS = Number(process.env.ROCE_RUN_SEEDS ?? 30);
const FIRST = Number(process.env.ROCE_RUN_FIRST ?? 1);
/** So that PSNs wrap. */
const P = 0xff_ffc0;
const CNP = 0x81;
const ERRNOS = [1, 14, 22, 90, 101];
const OPCODES = [
  'SEND',
  'SEND',
  'SEND',
  'RDMA_WRITE',
  'RDMA_WRITE',
  'SEND_WITH_IMM',
  'RDMA_WRITE_WITH_IMM',
] as const;

interface Played {
  type: QpType;
  number: number;
  qp: QpCreated;
  /** Of the peer's next READ. */
  psn: number;
}

/** Returns the words and bytes that a link reads of the packets [from, to): the batch stays as it is. */
function packetsOf(batch: TxBatch, from: number, to: number): string[] {
  const copy = new TxBatch(batch.regions, batch.capacity, batch.fragmentCapacity);
  copy.slots.set(batch.slots);
  copy.headers.set(batch.headers);
  copy.fragments.set(batch.fragments);
  Object.assign(copy, { count: batch.count, fragmentCount: batch.fragmentCount, lastRun: batch.lastRun });
  unfoldRuns(copy);
  const { slots, headers, fragments } = copy;
  return Array.from({ length: to - from }, (_, i) => {
    const w = (from + i) * TX_SLOT_WORDS;
    slots[w + Tx.STATUS] = 0;
    const at = slots[w + Tx.HEADER_OFFSET];
    const header = headers.subarray(at, at + slots[w + Tx.HEADER_LENGTH]);
    const f = slots[w + Tx.FRAGMENT_FIRST] * FRAGMENT_WORDS;
    const payload = fragments.subarray(f, f + slots[w + Tx.FRAGMENT_COUNT] * FRAGMENT_WORDS);
    return `${slots.subarray(w, w + TX_SLOT_WORDS)} ${Buffer.from(header).toString('hex')} ${payload}`;
  });
}

/** An adapter with queue pairs of one type or several, and all that its program and its peers do by a seed. */
class Play {
  readonly log: unknown[] = [];
  readonly #random: ReturnType<typeof createRandom>;
  readonly #hand: ByHand;
  readonly #seen: Map<string, number>;
  readonly #mtu: number;
  readonly #maxInlineData: number;
  readonly #queues: Played[];
  readonly #batch: TxBatch;
  readonly #buffer: ArrayBuffer;
  #mr;
  #isThere = true;
  #wrId = 0;

  constructor(seed: number, runs: boolean, seen: Map<string, number>) {
    this.#random = createRandom(seed);
    this.#seen = seen;
    const { pick, chance, between } = this.#random;
    this.#mtu = pick([256, 512, 1024, 2048, 4096]);
    this.#hand = new ByHand({}, { credits: chance(0.3), experimental: ['xrc'] });
    const { side } = this.#hand;
    const types: QpType[] = chance(0.4)
      ? [pick(['RC', 'UC', 'XRC_INI'] as const)]
      : ['RC', 'UC', 'XRC_INI', 'RC'];
    this.#maxInlineData = pick([64, 100, 900]);
    const cap = { maxSendWr: 128, maxSendSge: 8, maxInlineData: this.#maxInlineData };
    const congestion = chance(0.3) ? { controller: 'dcqcn' as const } : {};
    const recovery = chance(0.5) ? { selective: chance(0.5), probes: chance(0.5) } : {};
    this.#queues = types.map((type, number) => {
      side.createQp(cap, type === 'UC' ? { type } : { type, congestion, recovery });
      return { type, number, qp: side.qp, psn: P };
    });
    for (const queue of this.#queues) this.#connect(queue);
    this.#buffer = new ArrayBuffer(80 * this.#mtu);
    this.#mr = this.#register(0, 80 * this.#mtu);
    this.#batch = new TxBatch(side.adapter.regions, chance(0.4) ? between(2, 60) : 128);
    this.#batch.runs = runs;
  }

  #init(offset: number, length: number) {
    return { pd: this.#hand.side.pd, backing: 900, buffer: this.#buffer, offset, length, access: 0xf };
  }

  #register(offset: number, length: number) {
    return this.#hand.side.adapter.registerMr(this.#init(offset, length));
  }

  #state({ qp }: Played) {
    return this.#hand.side.adapter.queryQp(qp.qpn).attr.qpState;
  }

  #connect(queue: Played): void {
    const values: Record<string, unknown> = {
      pkeyIndex: 0,
      portNum: 1,
      qpAccessFlags: 0xe,
      pathMtu: this.#mtu,
      destQpNum: 70 + queue.number,
      rqPsn: P,
      maxDestRdAtomic: 16,
      minRnrTimer: 12,
      ahAttr: addressOf(1),
      sqPsn: P,
      timeout: 10,
      retryCnt: 7,
      rnrRetry: 7,
      maxRdAtomic: 16,
    } satisfies QpAttr;
    queue.psn = P;
    for (const [from, to] of [
      ['RESET', 'INIT'],
      ['INIT', 'RTR'],
      ['RTR', 'RTS'],
    ] as const) {
      const required = transition(queue.type, from, to)!.required.map((name) => [name, values[name]]);
      this.#hand.side.adapter.modifyQp(queue.qp.qpn, { qpState: to, ...Object.fromEntries(required) });
    }
  }

  /** Posts requests, most of them several times the same. */
  #post({ type }: Played, regions: WorkInit['sge']): void {
    const { pick, chance, between } = this.#random;
    const { side } = this.#hand;
    const mtu = this.#mtu;
    const mr = pick(regions!).mr;
    const length = pick([0, 1, 64, 65, mtu - 1, mtu, mtu + 1, between(0, 9 * mtu), 12 * mtu, 20 * mtu]);
    const flags =
      (chance(0.3) ? SendFlags.SIGNALED : 0) |
      (chance(0.1) ? SendFlags.SOLICITED : 0) |
      (chance(0.03) ? SendFlags.FENCE : 0);
    const cut = between(0, length);
    const second = { mr: pick(regions!).mr, offset: 7, length: pick([0, length - cut]) };
    const sge = chance(0.2)
      ? [{ mr, length: cut }, second, { mr: this.#mr, length: pick([0, 4 * mtu]) }]
      : [{ mr, offset: between(0, 99), length }];
    const remote = { addr: BigInt(between(0, 99)) << 30n, rkey: 5 };
    let work: WorkInit = { opcode: pick(OPCODES), sge, flags, remote, immediate: 3, srqn: 0x33 };
    if (chance(0.15)) {
      const most = this.#maxInlineData;
      // One byte too many is an error of the request, where the entry has room for it.
      const bytes = pick([1, 64, most - 1, most, Math.max(most, Math.min(most + 1, 128))]);
      work = { ...work, sge: [], inline: new Uint8Array(bytes) };
    } else if (type !== 'UC' && chance(0.06))
      work = { ...work, opcode: 'RDMA_READ', sge: [{ mr: this.#mr, length: between(0, 20 * mtu) }] };
    for (let i = between(1, 40); i > 0 && side.sq.used < 100; i--) {
      const other = (chance(0.1) ? SendFlags.SIGNALED : 0) | (chance(0.03) ? SendFlags.SOLICITED : 0);
      side.post({ ...work, wrId: this.#wrId++, flags: flags ^ other });
    }
  }

  /** The peer's READ of a part of a region. */
  #read(queue: Played, { addr, rkey }: { addr: bigint; rkey: number }): void {
    const length = this.#random.between(1, 60 * this.#mtu);
    this.#hand.put({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: queue.psn, reth: { addr, rkey, length } });
    queue.psn += Math.ceil(length / this.#mtu);
  }

  /** An ACK, a NAK or a CNP. */
  #answer({ type, qp }: Played): void {
    const { between } = this.#random;
    const { side } = this.#hand;
    const { sqPsn = P, qpState } = side.adapter.queryQp(qp.qpn).attr;
    if (type === 'UC' || (qpState !== 'RTS' && qpState !== 'SQD')) return;
    side.use(qp);
    const kind = between(0, 8);
    if (kind === 8) {
      this.#hand.put({ opcode: CNP, psn: 0, ackReq: false, payload: new Uint8Array(16) });
      return;
    }
    const credits = kind < 5 ? 0x1f : between(0, 12);
    const syndrome = [NakCode.PSN_SEQUENCE_ERROR, 0x20 | between(0, 5)][kind] ?? credits;
    const opcode = Opcode.RC_ACKNOWLEDGE | (type === 'XRC_INI' ? Transport.XRC : 0);
    const aeth = { syndrome, msn: between(0, 400) };
    this.#hand.put({ opcode, psn: sqPsn - between(1, 40), ackReq: false, aeth });
  }

  /** The program does something while the link has a part of the batch. */
  #change(queue: Played): void {
    const { pick, chance, between } = this.#random;
    const { adapter } = this.#hand.side;
    const { qpn } = queue.qp;
    const state = this.#state(queue);
    const deed = between(0, 11);
    let what = 'answer';
    if (deed === 0 && state !== 'RESET') {
      what = 'ERR';
      adapter.modifyQp(qpn, { qpState: 'ERR' });
    } else if (deed < 3 && state === 'RTS') {
      what = 'SQD';
      adapter.modifyQp(qpn, { qpState: 'SQD' });
    } else if (deed === 3) {
      what = 'RESET';
      adapter.modifyQp(qpn, { qpState: 'RESET' });
      this.#connect(queue);
    } else if (deed === 4 && this.#isThere) {
      what = 'deregister';
      this.#isThere = false;
      adapter.deregisterMr(this.#mr.handle);
    } else if (deed === 5 && this.#isThere) {
      what = 'reregister';
      const init = this.#init(pick([0, 64]), pick([70, 79]) * this.#mtu);
      this.#mr = adapter.reregisterMr(this.#mr.handle, init, chance(0.5));
    } else if (deed === 6 && queue.type !== 'UC' && state === 'RTS') {
      what = 'rate limit';
      adapter.modifyQp(qpn, { qpState: 'RTS', rateLimit: pick([0, 1000, 1_000_000]) });
    } else if (deed === 7 && state === 'RTS') {
      what = 'resize';
      const { cap } = adapter.queryQp(qpn).attr;
      try {
        const resized = adapter.modifyQp(qpn, { cap: { ...cap!, maxSendWr: pick([128, 256, 512]) } });
        queue.qp = { ...queue.qp, ...resized };
      } catch (error) {
        // While a request is posted that has too much inline data.
        this.log.push((error as Error).message);
      }
    } else if (deed === 8) {
      what = 'credits';
      adapter.setCredits(qpn, chance(0.5));
    } else this.#answer(queue);
    this.#count(what, 1);
  }

  #count(what: string, by: number): void {
    this.#seen.set(what, (this.#seen.get(what) ?? 0) + by);
  }

  /** The link takes a batch, in parts. */
  #take(): void {
    const { pick, chance, between } = this.#random;
    const batch = this.#batch;
    const { slots, count } = batch;
    for (let i = 0; i < count; i += runOf(batch, i))
      if (runOf(batch, i) > 1) this.#count('runs', runOf(batch, i));
    for (let from = 0; from < count; ) {
      const to = chance(0.3) ? between(from, count) : count;
      if (to < count) splitRun(batch, to);
      const refused = chance(0.05) ? between(from, to) : count;
      const end = refused + between(1, 9);
      const errno = pick(ERRNOS);
      for (let i = from; i < to; i++)
        slots[i * TX_SLOT_WORDS + Tx.STATUS] = i >= refused && i < end ? errno : 0;
      this.log.push(packetsOf(batch, from, to));
      from = to;
      if (chance(0.25)) this.#change(pick(this.#queues));
    }
  }

  run(): unknown[] {
    const { pick, chance, between } = this.#random;
    const hand = this.#hand;
    const { side } = hand;
    const { adapter } = side;
    const mtu = this.#mtu;
    const shared = side.register(new SharedArrayBuffer(64 * mtu), 0xf, 128, 60 * mtu);
    const far = new SharedArrayBuffer(64 * mtu);
    let pulls = 0;
    setReach(far, { pull: () => ++pulls % 41 !== 0, push: () => true, forget: () => {} });
    const reached = side.register(far);
    const nothing = { ...reached, ...adapter.allocNullMr(side.pd) };
    for (let round = 0; round < 8; round++) {
      const element = (mr: typeof shared) => ({ mr, length: 0 });
      const usual = [this.#mr, this.#mr, this.#mr, this.#mr, shared, shared].map(element);
      const regions = [...usual, element(reached), element(nothing)];
      for (const queue of this.#queues) {
        side.use(queue.qp);
        for (let i = between(0, 3); i > 0; i--) this.#post(queue, regions);
        if (queue.type === 'RC' && chance(0.4)) this.#read(queue, pick([this.#mr, this.#mr, reached]));
      }
      for (let turn = 0; turn < 40; turn++) {
        this.#batch.clear();
        if (adapter.transmit(this.#batch) === 0) break;
        this.#take();
        adapter.sent(this.#batch);
        adapter.checkInvariants();
        if (chance(0.5)) this.#answer(pick(this.#queues));
      }
      for (const queue of this.#queues) if (chance(0.7)) this.#answer(queue);
      const done: Completion[] = side.poll();
      this.log.push(done);
      this.#count('completions', done.length);
      hand.now += pick([0, 10, 500, 5000, 50_000, 10_000_000]);
      adapter.advance();
      adapter.checkInvariants();
      this.#repair();
    }
    const states = this.#queues.map(({ qp: { qpn } }) => [
      adapter.qpCounters(qpn),
      adapter.queryQp(qpn).attr,
    ]);
    this.log.push(states, side.events, adapter.counters());
    return this.log;
  }

  /** Most of what ended begins anew. */
  #repair(): void {
    const { adapter } = this.#hand.side;
    for (const queue of this.#queues) {
      const { qpn } = queue.qp;
      const state = this.#state(queue);
      if (state === 'SQE' || state === 'SQD') {
        // A queue pair that has not drained yet can't go on (IBTA vol 1 §10.3.1.6).
        const { sqDraining } = adapter.queryQp(qpn).attr;
        if (sqDraining !== true) adapter.modifyQp(qpn, { qpState: 'RTS' });
      } else if (state === 'ERR' && this.#random.chance(0.7)) {
        adapter.modifyQp(qpn, { qpState: 'RESET' });
        this.#connect(queue);
      }
    }
    if (!this.#isThere && this.#random.chance(0.5)) {
      this.#mr = this.#register(0, 80 * this.#mtu);
      this.#isThere = true;
    }
  }
}

test('while all changes, packets, completions and counters are those of slots for each packet', () => {
  const seen = new Map<string, number>();
  for (let seed = FIRST; seed < FIRST + SEEDS; seed++)
    expect(new Play(seed, true, seen).run(), `seed ${seed}`).toEqual(new Play(seed, false, new Map()).run());
  const changes = [
    'answer',
    'ERR',
    'SQD',
    'RESET',
    'deregister',
    'reregister',
    'rate limit',
    'resize',
    'credits',
  ];
  for (const what of changes) expect(seen.get(what), what).toBeGreaterThan(0);
  expect(seen.get('runs')).toBeGreaterThan(100 * SEEDS);
  expect(seen.get('completions')).toBeGreaterThan(10 * SEEDS);
});
