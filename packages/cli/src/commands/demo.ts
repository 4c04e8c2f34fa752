/** `roce demo`: two adapters on loopback addresses, and SEND, WRITE and READ between them, verified. */
import { resolve } from 'node:path';
import { moveAll, moveOne, pingPong, type Row } from '../demo/operations.ts';
import { openPair, type Places } from '../demo/pair.ts';
import { availableLink } from '../doctor/machine.ts';
import { type Column, fitTable } from '../table.ts';
import type { Terminal } from '../terminal.ts';

interface Options extends Places {
  size: number;
  /** Percent. */
  loss: number;
  seed: number;
  trace: string;
  json: boolean;
}

/** Bytes of the messages that are traced: five packets at the largest path MTU. */
const TRACED = 20_001;

export async function run(_args: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const link = options.link === 'auto' ? await availableLink() : options.link;
  const report = await measure({ ...options, link }, terminal);
  if (options.json) terminal.json(report);
  else print(report, options, terminal);
  return report.ok ? 0 : 1;
}

async function measure(options: Options, terminal: Terminal) {
  const { loss, seed, trace } = options;
  // Timed without the tracer, which copies every packet; then one message of each kind with it.
  const { signal } = terminal;
  terminal.progress('moving data …');
  const undisturbed = await moveUndisturbed(options, signal);
  if (loss > 0) terminal.progress('moving data over a lossy link …');
  const underLoss = loss > 0 ? await moveUnderLoss(options, signal) : [];
  const traced = await traceOne(options, signal);
  const ok = [...undisturbed.operations, ...underLoss].every((row) => row.equal) && traced;
  return { ok, ...undisturbed, underLoss: { loss: loss / 100, seed, operations: underLoss }, trace };
}

async function moveUndisturbed(options: Options, signal: AbortSignal) {
  const { size } = options;
  const bytes = Math.min(64, size);
  await using pair = await openPair(options, size, signal);
  const { link, limitations, activeMtu } = pair.a.device.query();
  const operations = await moveAll(pair, size);
  return {
    link,
    limitations,
    pathMtu: Math.min(activeMtu, pair.b.device.query().activeMtu),
    operations,
    roundTripMicroseconds: { bytes, ...(await pingPong(pair, bytes)) },
  };
}

async function moveUnderLoss(options: Options, signal: AbortSignal): Promise<Row[]> {
  const { size, loss, seed } = options;
  await using pair = await openPair(options, size, signal, { faults: { loss: loss / 100, seed } });
  return await moveAll(pair, size);
}

async function traceOne(options: Options, signal: AbortSignal): Promise<boolean> {
  await using pair = await openPair(options, TRACED, signal, { trace: resolve(options.trace) });
  return await moveOne(pair, TRACED);
}

function print(report: Awaited<ReturnType<typeof measure>>, options: Options, terminal: Terminal): void {
  const { colors } = terminal;
  const { link, pathMtu, roundTripMicroseconds: trip, underLoss, ok } = report;
  terminal.paragraph(
    '',
    `${colors.bold('Two RoCEv2 adapters in this process')}: ${options.a} and ${options.b}, UDP port ${options.udpPort}, path MTU ${pathMtu}`,
  );
  if (link === 'dgram') {
    terminal.paragraph(
      '',
      'Link: dgram (node:dgram, no native addon). It reaches node-roce programs only, and is slower; see `roce doctor`.',
    );
  } else terminal.line(`Link: ${link} (the native addon)`);
  terminal.line();
  printTable(report.operations, ['packets', 'retransmitted'], terminal);
  terminal.line();
  terminal.paragraph(
    '',
    `Round trip of ${trip.bytes}-byte messages: ${trip.p50.toFixed(1)} µs (p50), ${trip.p99.toFixed(1)} µs (p99), both ends in one thread, ${trip.polled ? 'polled' : 'awaited'}`,
  );
  if (underLoss.operations.length > 0) {
    terminal.line();
    terminal.paragraph(
      '',
      `The same over a link that loses ${options.loss} % of the packets in each direction (seed ${underLoss.seed}):`,
    );
    terminal.line();
    printTable(underLoss.operations, ['packets', 'lost', 'retransmitted'], terminal);
  }
  terminal.line();
  terminal.paragraph('', `Every packet of one message of each kind: ${options.trace}`);
  terminal.line(ok ? colors.green('All data arrived as it was sent.') : colors.red('Data differs.'));
  if (!terminal.isTTY) return;
  terminal.line();
  // `npm run demo` has roce in its PATH; the shell of a clone has not.
  const command = terminal.env.npm_lifecycle_event === 'demo' ? 'node packages/cli/bin/roce.js' : 'roce';
  terminal.paragraph(
    '',
    `Look at the packets: ${command} dump ${options.trace} | head, or open the file with Wireshark.`,
  );
}

const COLUMNS = {
  operation: { heading: '', value: (row) => row.what },
  messages: { heading: 'messages', value: (row) => String(row.messages), right: true },
  bytes: { heading: 'bytes', value: (row) => String(row.bytes), right: true },
  packets: { heading: 'packets', value: (row) => String(row.packets), right: true },
  lost: { heading: 'lost', value: (row) => String(row.lost), right: true },
  retransmitted: { heading: 'retransmitted', value: (row) => String(row.retransmitted), right: true },
  rate: { heading: 'Gb/s', value: (row) => ((row.bytes * 8) / row.seconds / 1e9).toFixed(2), right: true },
  digest: {
    heading: 'SHA-256',
    value: (row) => `${row.sha256.slice(0, 12)}… ${row.equal ? 'equal' : 'DIFFERS'}`,
  },
} satisfies Record<string, Column<Row>>;

type Count = 'packets' | 'lost' | 'retransmitted';

function printTable(rows: readonly Row[], counts: readonly Count[], terminal: Terminal): void {
  const { dim, red } = terminal.colors;
  const { operation, messages, bytes, rate, digest } = COLUMNS;
  const columns = [operation, messages, bytes, ...counts.map((count) => COLUMNS[count]), rate, digest];
  const { heading, rows: lines } = fitTable(columns, rows, terminal.paragraphWidth);
  if (heading !== undefined) terminal.line(dim(heading));
  for (const [i, line] of lines.entries()) terminal.line(rows[i].equal ? line : red(line));
}
