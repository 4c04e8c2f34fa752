/**
 * The rows of the benchmark and their counterparts. A row has a `kind` (which method of a contender it calls), its plan, the
 * contenders that can do it, and the figure that they are compared by.
 */
import { cable } from './cable.mjs';
import { cLimit, cLimitOver } from './contenders/c-limit.mjs';
import { fabric } from './contenders/fabric.mjs';
import { nodeRoce, nodeRoceOver } from './contenders/node-roce.mjs';
import { tcp } from './contenders/tcp.mjs';

const KIB = 1024;
const MIB = 1024 * KIB;
const SIZES = [
  [64, '64 B'],
  [4 * KIB, '4 KiB'],
  [64 * KIB, '64 KiB'],
  [MIB, '1 MiB'],
  [16 * MIB, '16 MiB'],
];

/** Enough for about a second on a machine of today; less for small messages, which take longer a byte. */
function bytesFor(size, { quick }) {
  const full = size <= 64 ? 32 * MIB : size <= 4 * KIB ? 512 * MIB : 2048 * MIB;
  return quick ? Math.max(size * 4, full / 32) : full;
}

/** Goodput over a fault link that loses packets in both directions, and the cost of a lost packet that no other follows. */
function lossRows(options) {
  const bytes = options.quick ? 16 * MIB : 512 * MIB;
  const keeping = [
    ['', {}],
    [', responder keeps ahead', { keepEarly: 'ahead' }],
  ];
  const streams = ['WRITE', 'READ'].flatMap((operation) =>
    [0.01, 0.05].flatMap((loss) =>
      // The responder of a READ keeps nothing.
      keeping.slice(0, operation === 'READ' ? 1 : 2).map(([suffix, recovery]) => ({
        name: `${operation} 1 MiB, path MTU 4096, ${loss * 100} % lost both ways${suffix}`,
        kind: 'lossy',
        figure: 'percentOfClean',
        unit: '% of clean',
        plan: { operation, size: MIB, mtu: 4096, bytes, loss, recovery },
        contenders: [nodeRoce],
      })),
    ),
  );
  const tails = ['WRITE', 'FETCH_AND_ADD'].map((operation) => ({
    name: `a lost ${operation}, round trip of 100 µs and more, nothing else outstanding`,
    kind: 'lostTail',
    figure: 'cost',
    unit: 'µs',
    lessIsBetter: true,
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
  const contenders = [xdp, generic, nodeRoceOver(cable, 'udp'), cLimitOver(cable)];
  return [
    ...[1024, 4096].map((mtu) => ({
      name: `WRITE 1 MiB over veth, path MTU ${mtu}, checksum 0, receive processing on the receiver’s processor`,
      kind: 'stream',
      figure: 'gbps',
      unit: 'Gb/s',
      plan: { operation: 'WRITE', size: MIB, mtu, offload: false, bytes: (options.quick ? 32 : 256) * MIB },
      contenders,
    })),
    {
      name: 'round trip of 64 B over veth, polled, receive processing on the receiver’s processor',
      kind: 'pingpong',
      figure: 'p50',
      unit: 'µs',
      lessIsBetter: true,
      plan: { size: 64, events: false, count: options.quick ? 1000 : 10_000 },
      contenders,
    },
  ];
}

export function rows(options) {
  const list = [];
  for (const operation of ['WRITE', 'READ', 'SEND']) {
    for (const mtu of [1024, 4096]) {
      for (const [size, name] of SIZES) {
        const contenders = [nodeRoce, cLimit];
        if (operation === 'WRITE' && size >= 64 * KIB && mtu === 4096) contenders.push(tcp);
        if (operation === 'SEND' && size === MIB && mtu === 4096) contenders.push(fabric);
        list.push({
          name: `${operation} ${name}, path MTU ${mtu}`,
          kind: 'stream',
          figure: 'gbps',
          unit: 'Gb/s',
          plan: { operation, size, mtu, bytes: bytesFor(size, options) },
          contenders,
        });
      }
    }
  }
  list.push(
    ...lossRows(options),
    ...vethRows(options),
    {
      name: 'WRITE 1 MiB, path MTU 4096, checksum 0',
      kind: 'stream',
      figure: 'gbps',
      unit: 'Gb/s',
      plan: { operation: 'WRITE', size: MIB, mtu: 4096, offload: false, bytes: bytesFor(MIB, options) / 4 },
      contenders: [nodeRoce, cLimit],
    },
    {
      name: 'messages of 64 B',
      kind: 'stream',
      figure: 'messagesPerSecond',
      unit: '/s',
      plan: { operation: 'SEND', size: 64, mtu: 4096, bytes: options.quick ? 2 * MIB : 64_000_000 },
      contenders: [nodeRoce, cLimit],
    },
    ...[false, true].map((events) => ({
      name: `round trip of 64 B, ${events ? 'by events' : 'polled'}`,
      kind: 'pingpong',
      figure: 'p50',
      unit: 'µs',
      lessIsBetter: true,
      plan: { size: 64, events, count: options.quick ? 1000 : 20_000 },
      contenders: events ? [nodeRoce, cLimit, tcp] : [nodeRoce, cLimit, tcp, fabric],
    })),
    {
      name: 'allocation, 1,000,000 SENDs of 64 B',
      kind: 'allocation',
      figure: 'bytesPerMessage',
      unit: 'B/message',
      lessIsBetter: true,
      plan: { count: options.quick ? 50_000 : 1_000_000 },
      contenders: [nodeRoce],
    },
    {
      name: '1,000 queue pairs, WRITE 4 KiB on each in turn',
      kind: 'many',
      figure: 'gbps',
      unit: 'Gb/s',
      plan: { queuePairs: options.quick ? 50 : 1000, size: 4096, rounds: options.quick ? 2 : 40 },
      contenders: [nodeRoce],
    },
    {
      name: '100,000 × create and destroy a region, a completion queue and a queue pair',
      kind: 'churn',
      figure: 'perSecond',
      unit: '/s',
      plan: { count: options.quick ? 500 : 100_000 },
      contenders: [nodeRoce],
    },
    ...[1, 16].map((together) => ({
      name: `connects and disconnects by the connection manager, ${together} at a time`,
      kind: 'connects',
      figure: 'perSecond',
      unit: '/s',
      plan: { count: options.quick ? 50 : 5000, together },
      contenders: [nodeRoce],
    })),
  );
  return options.only ? list.filter(({ name }) => new RegExp(options.only, 'i').test(name)) : list;
}
