/**
 * The rows that `--compare` measures of two commits. `kind` names the measurement in sessions.mjs, `plan` goes to it,
 * `figure` is the result's field that is compared.
 */
const KIB = 1024;
const MIB = 1024 * KIB;

const GBPS = { figure: 'gbps', unit: 'Gb/s' };
const PER_SECOND = { figure: 'perSecond', unit: '/s' };
const CPU = { figure: 'cpuNsPerMessage', unit: 'ns CPU', lessIsBetter: true };
const P50 = { figure: 'p50', unit: 'µs', lessIsBetter: true };

/** A row is its name to users and to older commits: a changed plan gets a changed name. */
export const ROWS = [
  ...[1024, 4096].map((mtu) => ({
    name: `WRITE 1 MiB, path MTU ${mtu}`,
    kind: 'stream',
    ...GBPS,
    plan: { operation: 'WRITE', size: MIB, mtu },
  })),
  {
    name: 'WRITE 1 MiB, path MTU 4096, checksum 0',
    kind: 'stream',
    ...GBPS,
    plan: { operation: 'WRITE', size: MIB, mtu: 4096, offload: false },
  },
  {
    name: 'WRITE 1 MiB, path MTU 4096, worker engines',
    kind: 'stream',
    ...GBPS,
    plan: { operation: 'WRITE', size: MIB, mtu: 4096, engine: 'worker', events: true },
  },
  {
    name: 'READ 1 MiB, path MTU 4096',
    kind: 'stream',
    ...GBPS,
    plan: { operation: 'READ', size: MIB, mtu: 4096 },
  },
  {
    name: 'SEND 4 KiB, path MTU 4096',
    kind: 'stream',
    ...GBPS,
    plan: { operation: 'SEND', size: 4 * KIB, mtu: 4096 },
  },
  ...[16, 1].map((every) => ({
    name: `SEND 64 B, ${every === 1 ? 'each' : `every ${every}th`} signaled`,
    kind: 'stream',
    ...PER_SECOND,
    plan: { operation: 'SEND', size: 64, mtu: 4096, every },
  })),
  ...[false, true].map((events) => ({
    name: `round trip of 64 B, ${events ? 'by events' : 'polled'}`,
    kind: 'pingpong',
    ...P50,
    plan: { size: 64, events },
  })),
  // Both adapters in one thread, by its CPU time: the only rows that hold on a busy machine.
  ...[
    { operation: 'SEND', size: 64, text: '64 B', depth: 64 },
    { operation: 'WRITE', size: MIB, text: '1 MiB', depth: 4 },
    { operation: 'WRITE', size: MIB, text: '1 MiB', depth: 4, mtu: 1024 },
    { operation: 'READ', size: MIB, text: '1 MiB', depth: 4 },
  ].map(({ text, mtu = 4096, ...plan }) => ({
    name: `one thread: ${plan.operation} ${text}, path MTU ${mtu}`,
    kind: 'many',
    ...CPU,
    plan: { queuePairs: 1, mtu, ...plan },
  })),
  ...[64, 400].map((queuePairs) => ({
    name: `one thread: ${queuePairs} queue pairs, WRITE 4 KiB on each in turn`,
    kind: 'many',
    ...CPU,
    plan: { queuePairs, size: 4 * KIB },
  })),
  {
    name: 'create and destroy a region, a completion queue and a queue pair',
    kind: 'churn',
    ...PER_SECOND,
    plan: {},
  },
];
