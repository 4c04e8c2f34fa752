/**
 * The rows of the benchmark and their counterparts. A row has a `kind` (which method of a contender it calls), its plan, the
 * contenders that can do it, and the figure that they are compared by. One with `more` is measured with `--all`, or where `--only`
 * names it. A row is its name to pages and to older results: a changed plan gets a changed name.
 */
import { cable, cuttingCable } from './cable.mjs';
import { cLimit, cLimitOver } from './contenders/c-limit.mjs';
import { fabricTcp, fabricUdp } from './contenders/fabric.mjs';
import { iperf3 } from './contenders/iperf3.mjs';
import { nodeRoce, nodeRoceIn, nodeRoceOver } from './contenders/node-roce.mjs';
import { loopProgram, perf, programs } from './contenders/programs.mjs';
import { tcp } from './contenders/tcp.mjs';
import { ucx } from './contenders/ucx.mjs';

const KIB = 1024;
const MIB = 1024 * KIB;
const GBPS = { figure: 'gbps', unit: 'Gb/s' };
const MESSAGES = { figure: 'messagesPerSecond', unit: '/s' };
const P50 = { figure: 'p50', unit: 'µs', lessIsBetter: true };
const PER_SECOND = { figure: 'perSecond', unit: '/s' };
const BYTES = { figure: 'bytesPerMessage', unit: 'B/message', lessIsBetter: true };
const SIZES = [
  [64, '64 B'],
  [4 * KIB, '4 KiB'],
  [64 * KIB, '64 KiB'],
  [MIB, '1 MiB'],
  [16 * MIB, '16 MiB'],
];
/** One way: the rows of a run without `--all`. */
const USUAL = ['WRITE 64 KiB', 'WRITE 1 MiB', 'READ 64 KiB', 'READ 1 MiB', 'SEND 4 KiB', 'SEND 64 KiB'];

/** Enough for about a second on a machine of today; less for small messages, which take longer a byte. */
function bytesFor(size, { quick }) {
  const full = size <= 64 ? 32 * MIB : size <= 4 * KIB ? 512 * MIB : 2048 * MIB;
  return quick ? Math.max(size * 4, full / 32) : full;
}

/** One way, by operation, size and path MTU. TCP has no path MTU of its own, and is compared with the larger. */
function streamRows(options) {
  return ['WRITE', 'READ', 'SEND'].flatMap((operation) =>
    [1024, 4096].flatMap((mtu) =>
      SIZES.map(([size, text]) => {
        const others = mtu === 4096 && size <= MIB ? [ucx] : [];
        if (operation === 'WRITE' && mtu === 4096 && size >= 64 * KIB) others.push(tcp, iperf3);
        return {
          name: `${operation} ${text}, path MTU ${mtu}`,
          kind: 'stream',
          ...GBPS,
          plan: { operation, size, mtu, bytes: bytesFor(size, options) },
          contenders: [nodeRoce, cLimit, ...others],
          more: !USUAL.some((usual) => usual === `${operation} ${text}` && (mtu === 4096 || size === MIB)),
        };
      }),
    ),
  );
}

/** SENDs of 64 B, so many of them in one call, of 256 outstanding. */
function batchRows(options) {
  return [1, 16, 64].map((batch) => ({
    name: `SEND 64 B, ${batch} a call`,
    kind: 'stream',
    ...MESSAGES,
    plan: { operation: 'SEND', size: 64, mtu: 4096, batch, bytes: bytesFor(64, options) },
    contenders: [nodeRoce, ucx],
  }));
}

function roundTripRows(options) {
  const count = options.quick ? 1000 : 20_000;
  const c = (size) => (size <= 4 * KIB ? [cLimit] : []);
  const polled = SIZES.filter(([size]) => size <= MIB).map(([size, text]) => ({
    name: `round trip of ${text}, polled`,
    kind: 'pingpong',
    ...P50,
    plan: { size, events: false, count: Math.ceil(count / Math.max(1, size / (4 * KIB))) },
    contenders: [nodeRoce, ...c(size), tcp, fabricUdp, fabricTcp, ucx],
    more: size === 4 * KIB || size === MIB,
  }));
  const byEvents = {
    name: 'round trip of 64 B, by events',
    kind: 'pingpong',
    ...P50,
    plan: { size: 64, events: true, count },
    contenders: [nodeRoce, cLimit, tcp],
  };
  return [...polled, byEvents];
}

/** The engine in a thread of its own, compared with the engine in the program's; both programs sleep until a completion comes. */
function workerRows(options) {
  const plan = { operation: 'WRITE', size: MIB, mtu: 4096, events: true, bytes: bytesFor(MIB, options) };
  const contenders = [nodeRoceIn('worker'), nodeRoceIn('inline')];
  return [
    { name: 'WRITE 1 MiB by events, worker engines', kind: 'stream', ...GBPS, plan, contenders },
    {
      name: 'SEND 64 B by events, worker engines',
      kind: 'stream',
      ...MESSAGES,
      plan: { ...plan, operation: 'SEND', size: 64, bytes: bytesFor(64, options) / 4 },
      contenders,
    },
    {
      name: 'round trip of 64 B by events, worker engines',
      kind: 'pingpong',
      ...P50,
      plan: { size: 64, events: true, count: options.quick ? 1000 : 10_000 },
      contenders,
    },
  ];
}

/** Bytes that V8 allocates in the thread that posts, by kind of message. */
function allocationRows(options) {
  const share = options.quick ? 1 / 20 : 1;
  const streams = ['SEND', 'WRITE', 'READ'].flatMap((operation) =>
    SIZES.filter(([size]) => size <= MIB).map(([size, text]) => {
      const count = { 64: 1_000_000, [4 * KIB]: 200_000, [64 * KIB]: 40_000, [MIB]: 4000 }[size];
      return {
        name: `allocation, ${count.toLocaleString('en')} ${operation}s of ${text}`,
        kind: 'allocation',
        plan: { operation, size, count: count * share },
        more: operation !== 'SEND' || size !== 64,
      };
    }),
  );
  const roundTrips = [false, true].map((events) => ({
    name: `allocation, round trips of 64 B, ${events ? 'by events' : 'polled'}`,
    kind: 'allocationOfRoundTrips',
    plan: { size: 64, events, count: 50_000 * share },
    more: true,
  }));
  const many = [64, 1000].map((queuePairs) => ({
    name: `allocation, ${queuePairs.toLocaleString('en')} queue pairs, WRITE 4 KiB on each in turn`,
    kind: 'allocationOfMany',
    plan: { queuePairs, size: 4 * KIB, rounds: Math.ceil((100_000 * share) / queuePairs) },
    more: true,
  }));
  return [...streams, ...roundTrips, ...many].map((row) => ({ ...row, ...BYTES, contenders: [nodeRoce] }));
}

/** Goodput over a fault link that loses packets in both directions, and the cost of a lost packet that no other follows. */
function lossRows(options) {
  const bytes = options.quick ? 16 * MIB : 512 * MIB;
  const keeping = [
    ['', {}],
    [', responder keeps ahead', { keepEarly: 'ahead' }],
  ];
  const streams = ['WRITE', 'READ'].flatMap((operation) =>
    [0.001, 0.01, 0.05].flatMap((loss) =>
      // The responder of a READ keeps nothing.
      keeping.slice(0, operation === 'READ' ? 1 : 2).map(([suffix, recovery]) => ({
        name: `${operation} 1 MiB, path MTU 4096, ${loss * 100} % lost both ways${suffix}`,
        kind: 'lossy',
        figure: 'percentOfClean',
        unit: '% of clean',
        plan: { operation, size: MIB, mtu: 4096, bytes, loss, recovery },
        contenders: [nodeRoce],
        more: loss === 0.05 || suffix !== '',
      })),
    ),
  );
  const tails = ['WRITE', 'FETCH_AND_ADD'].map((operation) => ({
    name: `a lost ${operation}, round trip of 100 µs and more, nothing else outstanding`,
    kind: 'lostTail',
    figure: 'cost',
    unit: 'µs',
    lessIsBetter: true,
    more: true,
    plan: { operation, delay: 50, loss: 0.02, count: options.quick ? 500 : 10_000 },
    contenders: [nodeRoce],
  }));
  return [...streams, ...tails];
}

/** Over a veth between two namespaces: the xdp link, the UDP link and the C program on sockets. Skipped without root. */
function vethRows(options) {
  // A mode that is named is opened or is an error: no row has UDP in its place.
  const xdp = nodeRoceOver(cable, 'xdp', { xdpMode: 'native' });
  const generic = { ...nodeRoceOver(cable, 'xdp', { xdpMode: 'generic' }), name: 'node-roce, xdp generic' };
  const plan = { operation: 'WRITE', size: MIB, bytes: (options.quick ? 32 : 256) * MIB };
  const contenders = [xdp, generic, nodeRoceOver(cable, 'udp'), cLimitOver(cable)];
  return [
    ...[1024, 4096].map((mtu) => ({
      name: `WRITE 1 MiB over veth, path MTU ${mtu}, checksum 0, receive processing on the receiver’s processor`,
      kind: 'stream',
      ...GBPS,
      plan: { ...plan, mtu, offload: false },
      contenders,
    })),
    ...[true, false].map((segments) => ({
      name: `WRITE 1 MiB over veth, path MTU 4096, checksums, ${segments ? 'the interface takes super-packets (GSO)' : 'the kernel cuts super-packets up before the interface'}`,
      kind: 'stream',
      ...GBPS,
      plan: { ...plan, mtu: 4096, offload: true },
      contenders: [
        nodeRoceOver(segments ? cable : cuttingCable, 'udp'),
        cLimitOver(segments ? cable : cuttingCable),
      ],
    })),
    {
      name: 'round trip of 64 B over veth, polled, receive processing on the receiver’s processor',
      kind: 'pingpong',
      ...P50,
      plan: { size: 64, events: false, count: options.quick ? 1000 : 10_000 },
      contenders,
    },
  ];
}

/** perftest's programs on devices of ours, and the same measurements on an engine inline. */
function programRows({ quick }) {
  const contenders = [programs, perf, nodeRoce];
  return [
    ...['SEND', 'WRITE'].map((operation) => ({
      name: `ib_${operation.toLowerCase()}_lat by roce run, round trip of 64 B (node-roce: of SENDs)`,
      kind: 'pingpong',
      ...P50,
      plan: { operation, size: 64, events: false, count: quick ? 1000 : 20_000 },
      contenders,
    })),
    {
      name: 'ib_write_bw by roce run, 1 MiB, path MTU 4096',
      kind: 'stream',
      ...GBPS,
      plan: { operation: 'WRITE', size: MIB, mtu: 4096, bytes: bytesFor(MIB, { quick }) },
      contenders,
    },
    {
      name: 'round trip of 64 B between two queue pairs of one device, by roce run',
      kind: 'loop',
      ...P50,
      plan: { size: 64, count: quick ? 1000 : 20_000 },
      contenders: [loopProgram, nodeRoce],
    },
  ];
}

export function rows(options) {
  const list = [
    ...streamRows(options),
    {
      name: 'WRITE 1 MiB, path MTU 4096, checksum 0',
      kind: 'stream',
      ...GBPS,
      plan: { operation: 'WRITE', size: MIB, mtu: 4096, offload: false, bytes: bytesFor(MIB, options) / 4 },
      contenders: [nodeRoce, cLimit],
    },
    ...['messages of 64 B', 'messages of 64 B, by numbers'].map((name) => ({
      name,
      kind: 'stream',
      ...MESSAGES,
      plan: {
        operation: 'SEND',
        size: 64,
        mtu: 4096,
        bytes: options.quick ? 2 * MIB : 64_000_000,
        numbers: name.endsWith('by numbers'),
      },
      contenders: [nodeRoce, cLimit],
    })),
    ...batchRows(options),
    ...roundTripRows(options),
    ...workerRows(options),
    ...lossRows(options),
    ...vethRows(options),
    ...programRows(options),
    ...allocationRows(options),
    {
      name: '1,000 queue pairs, WRITE 4 KiB on each in turn',
      kind: 'many',
      ...GBPS,
      plan: { queuePairs: options.quick ? 50 : 1000, size: 4096, rounds: options.quick ? 2 : 40 },
      contenders: [nodeRoce],
    },
    // 64 with 128 outstanding on each is perftest's way (`-q 64`).
    ...[
      [64, 1],
      [64, 16],
      [64, 128],
      [1000, 1],
      [1000, 16],
    ].map(([queuePairs, depth]) => ({
      name: `${queuePairs.toLocaleString('en')} queue pairs, WRITE 4 KiB in turn, ${depth} outstanding on each, compared with one queue pair`,
      kind: 'turns',
      figure: 'ratio',
      unit: '× one queue pair, by processor time',
      plan: {
        ...{ queuePairs, depth, size: 4 * KIB, slices: 7 },
        rounds: Math.ceil((options.quick ? 2000 : 20_000) / (queuePairs * depth)),
      },
      contenders: [nodeRoce],
      more: depth === 16,
    })),
    {
      name: 'memory of an idle queue pair: 10,000 connections between two adapters, queues of 16',
      kind: 'idle',
      figure: 'rssBytes',
      unit: 'B of RSS each of both sides',
      lessIsBetter: true,
      plan: { count: options.quick ? 2000 : 20_000 },
      contenders: [nodeRoce],
      more: true,
    },
    {
      name: '100,000 × create and destroy a region, a completion queue and a queue pair',
      kind: 'churn',
      ...PER_SECOND,
      plan: { count: options.quick ? 500 : 100_000 },
      contenders: [nodeRoce],
    },
    ...[1, 16].map((together) => ({
      name: `connects and disconnects by the connection manager, ${together} at a time`,
      kind: 'connects',
      ...PER_SECOND,
      plan: { count: options.quick ? 50 : 5000, together },
      contenders: [nodeRoce],
    })),
  ];
  if (options.only) return list.filter(({ name }) => new RegExp(options.only, 'i').test(name));
  return options.all ? list : list.filter(({ more }) => !more);
}
