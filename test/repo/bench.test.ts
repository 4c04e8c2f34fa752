/** The bench as a program: it measures each contender or prints why it can't. No figure is judged here. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { median, percentile, ratio, summary } from '../../bench/statistics.mjs';

const run = promisify(execFile);
const bench = join(import.meta.dirname, '../../bench/run.mjs');
const directory = mkdtempSync(join(tmpdir(), 'roce-bench-test-'));
afterAll(() => rmSync(directory, { recursive: true }));

interface Row {
  name: string;
  figure: string;
  results: { contender: string; figure: { median: number }; samples: Record<string, unknown>[] }[];
  missing: { contender: string; reason: string }[];
}

async function rows(pattern: string): Promise<Row[]> {
  const { date, machine, load, rows } = await measured(pattern);
  expect(Date.parse(date)).toBeLessThanOrEqual(Date.now());
  expect(machine).toMatchObject({ node: process.version, processors: expect.any(Number) });
  expect(load).toBeGreaterThanOrEqual(0);
  return rows;
}

interface Report {
  date: string;
  machine: Record<string, unknown>;
  load: number;
  rows: Row[];
}

async function measured(pattern: string): Promise<Report> {
  const file = join(directory, 'report.json');
  await run(process.execPath, [bench, '--quick', '--only', pattern, '--json', file]);
  return JSON.parse(readFileSync(file, 'utf8'));
}

describe('a quick run', () => {
  test.each([
    ['^allocation, 1,000,000 SENDs', ['node-roce']],
    ['^1,000 queue pairs, .* in turn$', ['node-roce']],
    ['^100,000', ['node-roce']],
    ['^connects .* 16 at a time', ['node-roce']],
  ])('%s', { tags: ['slow', 'gate'] }, testRow);

  test.each([
    ['^WRITE 1 MiB, path MTU 4096$', ['node-roce', 'C limit', 'Node TCP', 'UCX over TCP', 'iperf3 TCP']],
    [
      '^round trip of 64 B, polled',
      [
        'node-roce',
        'C limit',
        'Node TCP',
        'fi_pingpong udp;ofi_rxd',
        'fi_pingpong tcp;ofi_rxm',
        'UCX over TCP',
      ],
    ],
    ['^SEND 64 B, 16 a call', ['node-roce', 'UCX over TCP']],
    ['^allocation, 1,000 queue pairs, .* in turn$', ['node-roce']],
    ['^allocation, round trips .* by events', ['node-roce']],
    ['^round trip of 64 B by events, worker', ['node-roce, worker', 'node-roce, inline']],
    ['^ib_send_lat', ['perftest by roce run', 'roce perf', 'node-roce']],
    ['^ib_write_bw', ['perftest by roce run', 'roce perf', 'node-roce']],
    ['two queue pairs of one device', ['C by roce run', 'node-roce']],
  ])('%s', { tags: ['slow'] }, testRow);

  async function testRow(pattern: string, contenders: string[]) {
    const [row, ...others] = await rows(pattern);
    expect(others).toEqual([]);
    const named = [...row!.results, ...row!.missing].map(({ contender }) => contender);
    expect(named.sort()).toEqual([...contenders].sort());
    for (const { figure, samples } of row!.results) {
      expect(figure.median).toBeGreaterThanOrEqual(0);
      expect(samples).toHaveLength(1);
      expect(samples[0]).toHaveProperty(row!.figure);
    }
    for (const { reason } of row!.missing) expect(reason).not.toBe('');
    const [first] = contenders.filter((name) => row!.missing.every(({ contender }) => contender !== name));
    expect(row!.results[0].contender).toBe(first);
  }

  test('an unknown option: usage, exit code 2', async () => {
    const failure = await run(process.execPath, [bench, '--fast']).catch((error) => error);
    expect(failure).toMatchObject({ code: 2, stdout: '' });
    expect(failure.stderr).toContain('usage:');
  });
});

test('medians, percentiles, spread and ratios', () => {
  expect(median([3, 1, 2])).toBe(2);
  expect(median([4, 1, 2, 3])).toBe(2.5);
  expect(percentile([1, 2, 3, 4], 50)).toBe(3);
  expect(percentile([1], 99)).toBe(1);
  expect(summary([2, 4, 3])).toMatchObject({ median: 3, min: 2, max: 4 });
  // Round by round: a slow round is slow for both.
  expect(ratio([10, 1], [20, 2])).toMatchObject({ median: 0.5, min: 0.5, max: 0.5 });
});

test('roce flows and tshark: time, processor time and memory of each', {
  tags: ['slow', 'gate'],
}, async () => {
  const file = join(directory, 'captures.json');
  const speed = join(import.meta.dirname, '../../bench/capture/speed.mjs');
  const { stdout } = await run(process.execPath, [
    speed,
    '--bytes',
    '4000000',
    '--rounds',
    '1',
    '--json',
    file,
  ]);
  const { bytes, tshark, results, exported } = JSON.parse(readFileSync(file, 'utf8'));
  expect(bytes).toBeGreaterThan(3_900_000);
  const names = [
    'roce flows',
    'roce flows --icrc skip',
    'roce flows, a quarter of the file',
    'roce export --parquet',
  ];
  if (tshark !== undefined) names.push('tshark -n -T fields');
  expect(Object.keys(results)).toEqual(names);
  for (const name of names) {
    expect(results[name].seconds.median).toBeGreaterThan(0);
    expect(results[name].memory.median).toBeGreaterThan(10);
    expect(stdout).toContain(name);
  }
  expect(exported.takes.median).toBeGreaterThan(0);
});
