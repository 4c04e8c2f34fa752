/**
 * `roce capture` of `roce demo` under loss on the loopback interface: text, JSON and the adapters agree on how many packets were
 * retransmitted, and why.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join as path } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Analysis, RetransmitCause } from '@node-roce/capture';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Namespace } from '../harness/namespaces.ts';
import { end } from '../harness/process.ts';

const root = path(import.meta.dirname, '../../..');
const roce = path(root, 'packages/cli/bin/roce.js');
const watched = path(import.meta.dirname, '../harness/watched-command.mjs');
const scratch = mkdtempSync(path(tmpdir(), 'roce-capture-demo-'));
const file = path(scratch, 'demo.pcapng');
const told = path(scratch, 'told.json');

interface Row {
  retransmitted: number;
  lost: number;
}

let where: Namespace;
let demo: { underLoss: { operations: Row[] }; operations: Row[] };

beforeAll(async () => {
  where = await Namespace.make();
  const args = [roce, 'capture', '-i', 'lo', '-w', file, '--json', '--buffer', '256M'];
  const recording = where.spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '';
  let err = '';
  recording.stdout!.on('data', (data) => (out += data));
  recording.stderr!.on('data', (data) => (err += data));
  while (!err.includes('capturing')) {
    if (recording.exitCode !== null) throw new Error(err);
    await sleep(20);
  }
  // Large enough that the share of unknown causes is far from its bound: 0 to 1.6 % in ten runs.
  const text = where.run(
    'env',
    `ROCE_WATCHED=${told}`,
    process.execPath,
    ...[
      watched,
      roce,
      'demo',
      '--size',
      '16M',
      '--loss',
      '2',
      '--trace',
      path(scratch, 'trace.pcapng'),
      '--json',
    ],
  );
  demo = JSON.parse(text);
  await end(recording, 'SIGINT', 30_000);
  expect(JSON.parse(out.trim().split('\n').at(-1)!)).toMatchObject({ dropped: 0 });
}, 120_000);

afterAll(async () => {
  await where?.[Symbol.asyncDispose]();
  rmSync(scratch, { recursive: true });
});

test('text, JSON and adapters: how many, how often, and why', () => {
  const json = path(scratch, 'flows.json');
  where.run('sh', '-c', '"$@" > "$0"', json, process.execPath, roce, 'flows', '--json', file);
  const analysis: Analysis = JSON.parse(readFileSync(json, 'utf8'));
  const text = where.run(process.execPath, roce, 'flows', file);
  const truth: { psn: number; cause: RetransmitCause }[] = JSON.parse(readFileSync(told, 'utf8'));
  const rows = [...demo.operations, ...demo.underLoss.operations];
  // The table of the demo leaves out the other adapter's, and the round trips.
  expect(rows.reduce((sum, { retransmitted }) => sum + retransmitted, 0)).toBeLessThanOrEqual(truth.length);
  expect(truth.length).toBeGreaterThan(300);

  // The demo loses packets in its own link, so some before the tap: each of them may be a retransmission.
  const lost = rows.reduce((sum, row) => sum + row.lost, 0);
  const counts = analysis.connections.flatMap(({ aToB, bToA }) => [aToB, bToA]);
  const total = counts.reduce((sum, { retransmitted }) => sum + retransmitted, 0);
  expect(total).toBeLessThanOrEqual(truth.length);
  expect(total).toBeGreaterThanOrEqual(truth.length - lost);
  const said = (cause: RetransmitCause) =>
    counts.reduce((sum, { retransmitCauses }) => sum + retransmitCauses[cause], 0);
  console.log(`${total} retransmitted, ${said('unknown')} unexplained`);
  expect(said('unknown') / total).toBeLessThanOrEqual(0.05);
  // Retransmissions for a NAK that answers a probe may count as either: alone the two were off by up to 0.097 in ten runs, together by 0.022.
  // Of packets lost before the tap the adapters know more.
  const unseen = said('unknown') + (truth.length - total);
  for (const [off, ...causes] of [
    [0.15, 'sequence-nak'],
    [0.15, 'probe'],
    [0.05, 'sequence-nak', 'probe'],
    [0.05, 'implied-nak'],
    [0.05, 'timeout'],
    [0, 'rnr'],
  ] as [number, ...RetransmitCause[]][]) {
    const truly = truth.filter((one) => causes.includes(one.cause)).length;
    const named = causes.reduce((sum, cause) => sum + said(cause), 0);
    expect(named, causes.join()).toBeLessThanOrEqual(truly + off * truth.length);
    expect(named, causes.join()).toBeGreaterThanOrEqual(truly - off * truth.length - unseen);
  }

  const goBacks = counts.reduce((sum, count) => sum + count.goBacks, 0);
  const [, packets, times] =
    /([\d,]+) packets? retransmitted in ([\d,]+) recover(?:y|ies) \(go-back-N\)/.exec(text)!;
  const number = (shown: string) => Number(shown.replaceAll(',', ''));
  expect([number(packets), number(times)]).toEqual([total, goBacks]);
});
