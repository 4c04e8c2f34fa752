/** `roce demo`: two adapters on loopback addresses and all three ways to move data, checked. */
import { resolve } from 'node:path';
import { moveAll, moveOne, pingPong, type Row } from '../demo/operations.ts';
import { openPair, type Places } from '../demo/pair.ts';
import { availableLink } from '../doctor/machine.ts';
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
  terminal.progress('moving data …');
  const undisturbed = await moveUndisturbed(options);
  if (loss > 0) terminal.progress('again, over a link that loses packets …');
  const underLoss = loss > 0 ? await moveUnderLoss(options) : [];
  const traced = await traceOne(options);
  const ok = [...undisturbed.operations, ...underLoss].every((row) => row.equal) && traced;
  return { ok, ...undisturbed, underLoss: { loss: loss / 100, seed, operations: underLoss }, trace };
}

async function moveUndisturbed(options: Options) {
  const { size } = options;
  await using pair = await openPair(options, size);
  const { link, limitations, activeMtu } = pair.a.device.query();
  const operations = await moveAll(pair, size);
  return {
    link,
    limitations,
    pathMtu: Math.min(activeMtu, pair.b.device.query().activeMtu),
    operations,
    roundTripMicroseconds: await pingPong(pair, Math.min(64, size)),
  };
}

async function moveUnderLoss(options: Options): Promise<Row[]> {
  const { size, loss, seed } = options;
  await using pair = await openPair(options, size, { faults: { loss: loss / 100, seed } });
  return await moveAll(pair, size);
}

async function traceOne(options: Options): Promise<boolean> {
  await using pair = await openPair(options, TRACED, { trace: resolve(options.trace) });
  return await moveOne(pair, TRACED);
}

function print(report: Awaited<ReturnType<typeof measure>>, options: Options, terminal: Terminal): void {
  const { colors } = terminal;
  const { link, pathMtu, roundTripMicroseconds: trip, underLoss, ok } = report;
  terminal.line(
    `${colors.bold('Two RoCEv2 adapters in this process')}: ${options.a} and ${options.b}, UDP port ${options.udpPort}, path MTU ${pathMtu}`,
  );
  if (link === 'dgram') {
    terminal.line(
      'Link: dgram (node:dgram, no native addon). It reaches node-roce programs only, and is slower; `npx roce doctor` tells more.',
    );
  } else terminal.line(`Link: ${link} (the native addon)`);
  terminal.line();
  printTable(report.operations, ['packets', 'sent again'], terminal);
  terminal.line();
  terminal.line(
    `Round trip of 64-byte messages: ${trip.p50.toFixed(1)} µs (p50), ${trip.p99.toFixed(1)} µs (p99), both ends in one thread, ${trip.polled ? 'polled' : 'awaited'}`,
  );
  if (underLoss.operations.length > 0) {
    terminal.line();
    terminal.line(
      `The same over a link that loses ${options.loss} % of the packets each way (seed ${underLoss.seed}):`,
    );
    terminal.line();
    printTable(underLoss.operations, ['packets', 'lost', 'sent again'], terminal);
  }
  terminal.line();
  terminal.line(`Every packet of one message of each kind: ${options.trace}`);
  terminal.line(ok ? colors.green('All data arrived as it was sent.') : colors.red('Data differs.'));
  terminal.message('');
  terminal.message(
    `Look at the packets: npx roce dump ${options.trace} | head, or open the file with Wireshark.`,
  );
}

const COUNTS = {
  packets: (row: Row) => row.packets,
  lost: (row: Row) => row.lost,
  'sent again': (row: Row) => row.retransmitted,
};

function printTable(rows: readonly Row[], counts: (keyof typeof COUNTS)[], terminal: Terminal): void {
  const { colors } = terminal;
  const head = ['', 'messages', 'bytes', ...counts, 'Gb/s', 'SHA-256'];
  const body = rows.map((row) => [
    row.what,
    `${row.messages}`,
    `${row.bytes}`,
    ...counts.map((count) => `${COUNTS[count](row)}`),
    ((row.bytes * 8) / row.seconds / 1e9).toFixed(2),
    `${row.sha256.slice(0, 12)}… ${row.equal ? 'equal' : 'DIFFERS'}`,
  ]);
  const widths = head.map((_, i) => Math.max(...[head, ...body].map((cells) => cells[i].length)));
  const isText = (i: number) => i === 0 || i === head.length - 1;
  const line = (cells: string[]) =>
    cells.map((cell, i) => (isText(i) ? cell.padEnd(widths[i]) : cell.padStart(widths[i]))).join('  ');
  terminal.line(colors.dim(line(head)));
  for (const [i, cells] of body.entries()) {
    terminal.line(rows[i].equal ? line(cells) : colors.red(line(cells)));
  }
}
