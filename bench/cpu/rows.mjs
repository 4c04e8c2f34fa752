/** The rows of `--cpu`: a plan of sides/one-thread.mjs or of its `Many`, and the work of the C program that is compared with it. */
const MIB = 1024 * 1024;

/**
 * @param posting `objects`: lists of requests; `batches`: the same by `postBatch`; `numbers`: `postSendOf` and `postRecvOf`; `prepared`: lists
 * of `qp.prepare`, receives by numbers; `made`: an object that is made for each
 */
const stream = (operation, size, window, batch, posting = 'objects') => ({
  kind: 'streams',
  plan: { operation, size, window, batch, posting },
  c: { mode: 'stream', length: Math.min(size, 4096), packets: Math.max(1, size / 4096) },
});

const ROUND_TRIP_IN_C = { mode: 'roundtrip', length: 64, packets: 1 };
const WRITE = { name: 'WRITE 1 MiB', ...stream('WRITE', MIB, 4, 1) };

/** `beside`: a row of which node-roce has slices among those of this one, since figures of two rows are minutes apart. */
export const ROWS = [
  { name: 'SEND 64 B', ...stream('SEND', 64, 256, 16) },
  { name: 'SEND 64 B, by postBatch', ...stream('SEND', 64, 256, 16, 'batches') },
  { name: 'SEND 64 B, by numbers', ...stream('SEND', 64, 256, 16, 'numbers') },
  { name: 'SEND 64 B, prepared', ...stream('SEND', 64, 256, 16, 'prepared') },
  { name: 'SEND 64 B, objects made for each', ...stream('SEND', 64, 256, 16, 'made') },
  { name: 'SEND 4 KiB', ...stream('SEND', 4096, 256, 16) },
  WRITE,
  { name: 'READ 1 MiB', ...stream('READ', MIB, 4, 1), beside: WRITE },
  {
    name: 'round trip of 64 B',
    kind: 'roundTrips',
    plan: { size: 64 },
    c: ROUND_TRIP_IN_C,
  },
  {
    name: 'round trip of 64 B by the link alone',
    kind: 'linkTrips',
    plan: { size: 64 },
    c: ROUND_TRIP_IN_C,
  },
  {
    name: 'round trip of 64 B by the link alone, with ACKs',
    kind: 'linkTrips',
    plan: { size: 64, acks: true },
    c: ROUND_TRIP_IN_C,
  },
  {
    name: '1,000 queue pairs, a WRITE of 4 KiB on each',
    kind: 'many',
    plan: { queuePairs: 1000, size: 4096 },
  },
];
