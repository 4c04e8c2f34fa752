// perftest's dialogue from its beginning to its end: what is exchanged, in which order, and when the data runs.
import {
  differences,
  int32,
  maxRdAtomicOf,
  mtuBytes,
  mtuOf,
  NO_DONE_SINCE,
  numberOf,
  reportMessages,
  reportOf,
  STRUCTURE_SINCE,
  structureOf,
  textOf,
  versionBytes,
} from './messages.mjs';
import { sizesOf } from './test.mjs';

/**
 * Plays a test (test.mjs) to its end over a channel, with the queue pairs of an endpoint.
 *
 * @param channel `exchange(bytes)` sends and receives as many, the client first; `exchangeKey(key)`; `done()`;
 *   with `-R` also `connectAll(…)`
 * @param endpoint `create(agreed)` gives a key for each queue pair; `connect(keys)`; `prepare(size)`, `run(size)`, `close()`
 * @returns what the sides agreed on, runs by size, reports that were exchanged
 */
export async function play(test, channel, endpoint) {
  const agreed = await open(test, channel);
  const mine = await endpoint.create(agreed, channel);
  const sync = () => channel.exchangeKey(mine[0]);
  const each = async () => {
    const theirs = [];
    for (const key of mine) theirs.push(await channel.exchangeKey(key));
    return theirs;
  };

  const isSend = test.verb === 'send';
  if (test.kind === 'lat' && !isSend) await sync();
  const theirs = await each();
  await endpoint.connect(theirs);
  if (isSend) await sync();
  await each();
  if (!isSend) await sync();

  const result = { agreed, theirs, runs: [], reports: [] };
  const exchangeReports = async (mine) => {
    const received = [];
    // Without a run of its own perftest sends an uninitialized structure.
    const messages = idle
      ? Array.from({ length: 5 }, () => Buffer.alloc(8, test.stack))
      : reportMessages(mine);
    for (const message of messages) received.push(await channel.exchange(message));
    result.reports.push({ mine, theirs: reportOf(received) });
  };

  // A side that neither sends nor takes messages waits for the other's last key.
  const takes = isSend || test.immediate;
  const duplex = test.duplex || (test.kind === 'lat' && (isSend || test.verb === 'write'));
  const idle = test.role === 'server' && !takes && !duplex;
  let report = { size: 0, iters: 0, peak: 0, average: 0, rate: 0 };
  for (const size of idle ? [] : sizesOf(test, agreed.mtu)) {
    if (takes) await endpoint.prepare(size);
    if (takes || test.duplex) await sync();
    const run = await endpoint.run(size);
    result.runs.push(run);
    if (test.kind === 'lat') continue;
    report = reportFrom(run, test);
    const after = test.all && (takes || test.duplex);
    if (after && !isSend) await sync();
    if (test.duplex && !(takes && test.seconds)) await exchangeReports(report);
    if (after && isSend) await sync();
  }

  if (test.kind === 'bw' && !takes && !test.duplex) {
    await sync();
    await exchangeReports(report);
  }
  if (!(test.kind === 'lat' && test.verb === 'write')) {
    await sync();
    if (numberOf(test.version) < NO_DONE_SINCE) await channel.done();
  }
  return result;
}

/** Versions, sizes, and from 6.28 on the structure. */
async function open(test, channel) {
  const version = textOf(await channel.exchange(versionBytes(test.version)));
  if (numberOf(version) < 5.7) throw new Error(`the peer is of version ${version}: too old`);
  const cycle = Math.max(test.cycle, (await channel.exchange(int32(test.cycle))).readInt32BE());
  const line = Math.max(test.line, (await channel.exchange(int32(test.line))).readInt32BE());
  const mtu = Math.min(test.mtu, mtuOf(await channel.exchange(mtuBytes(test.mtu))));
  const size = test.connection === 'UD' ? Math.min(test.size, mtu) : test.size;
  const agreed = { version, cycle, line, mtu, size, outReads: outReadsOf(test) };
  const both = Math.min(numberOf(version), numberOf(test.version));
  if (both < STRUCTURE_SINCE) return agreed;
  const structure = structureOf({ ...test, size });
  const theirs = await channel.exchange(structure);
  const different = differences(structure, theirs, both);
  if (different.length > 0) throw new Error(`the peer's test differs in ${different.join(', ')}`);
  return { ...agreed, outReads: Math.min(agreed.outReads, maxRdAtomicOf(theirs)), structure: theirs };
}

const outReadsOf = ({ verb, maxRdAtomic }) => (verb === 'read' || verb === 'atomic' ? maxRdAtomic : 1);

/** The report of a run: MB (2^20) or Gb (10^9) a second. */
function reportFrom({ size, iters, messages, seconds }, { gbits }) {
  const bytes = (messages * size) / seconds;
  const average = gbits ? (bytes * 8) / 1e9 : bytes / 2 ** 20;
  return { size, iters, peak: average, average, rate: messages / seconds / 1e6 };
}
