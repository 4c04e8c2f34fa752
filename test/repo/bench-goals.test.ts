/** `npm run bench -- --goals`: what it measures for which goal. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { ROWS } from '../../bench/cpu/rows.mjs';
// @ts-expect-error: plain JavaScript
import { BESIDE, GOALS, goalLines, goalRows, judge } from '../../bench/goals.mjs';
// @ts-expect-error: plain JavaScript
import { rows } from '../../bench/rows.mjs';

interface Row {
  name: string;
  contenders: { name: string }[];
}

const measured: Row[] = rows({ only: goalRows(), rounds: 1 });

test('each goal names a row of the bench and one of its contenders', () => {
  const cpu = new Set(ROWS.map(({ name }: Row) => name));
  for (const goal of [...GOALS, ...BESIDE]) {
    if (goal.cpu !== undefined) {
      expect(cpu).toContain(goal.cpu);
      continue;
    }
    const row = measured.find(({ name }) => name === goal.row);
    expect(row?.contenders.map(({ name }) => name)).toContain(goal.other);
  }
  expect(measured.map(({ name }) => name).length).toBe(new Set(measured.map(({ name }) => name)).size);
});

test('goals are met at their bound, and not measured where a contender is missing', () => {
  const cpuRow = (name: string, ns: Record<string, number>) => ({
    name,
    results: Object.entries(ns).map(([contender, each]) => ({ contender, ns: each })),
  });
  const cpu = [
    cpuRow('SEND 64 B', { 'C of 17a937cf': 55, 'node-roce': 100 }),
    cpuRow('SEND 4 KiB', { 'C of 17a937cf': 99, 'node-roce': 100 }),
    // Of a row of its own, minutes before: not what READ is compared with.
    cpuRow('WRITE 1 MiB', { 'node-roce': 50 }),
    cpuRow('READ 1 MiB', { 'node-roce, WRITE 1 MiB': 100, 'node-roce': 107 }),
    cpuRow('1,000 queue pairs, a WRITE of 4 KiB on each', { abc: 100, 'node-roce': 93 }),
  ];
  const rates = [
    {
      name: 'round trip of 64 B, polled',
      results: [
        { contender: 'node-roce' },
        { contender: 'C limit', ratio: { median: 2 } },
        { contender: 'Node TCP', ratio: { median: 0.3 } },
        { contender: 'UCX over TCP', ratio: { median: 1.4 } },
      ],
    },
  ];
  const judged = judge({ cpu, base: 'abc', rates });
  const of = (name: string, other: string) =>
    judged.find((one: { name: string; other: string }) => one.name === name && one.other === other);
  expect(of('SEND 64 B, by processor time', 'C of 17a937cf')).toMatchObject({ figure: 0.55, met: true });
  expect(of('SEND 4 KiB, by processor time', 'C of 17a937cf')).toMatchObject({ figure: 0.99, met: false });
  expect(of('WRITE 1 MiB, by processor time', 'C of 17a937cf')).toMatchObject({ met: undefined });
  expect(of('READ 1 MiB, by processor time', 'WRITE 1 MiB')).toMatchObject({ figure: 1.07, met: true });
  expect(of('round trip of 64 B, polled', 'C limit')).toMatchObject({ figure: 2, met: false });
  expect(of('round trip of 64 B, polled', 'Node TCP')).toMatchObject({ figure: 0.3, met: true });
  const lines: string[] = goalLines(judged);
  expect(lines.filter((line) => line.includes('UCX over TCP'))[0]).toMatch(/not measured$/);
  expect(lines.some((line) => /polled +UCX over TCP +1\.40 × {2}no goal$/.test(line))).toBe(true);
  expect(lines.some((line) => /1,000 queue pairs.* 1\.08 × {2}missed \(at least 1\.67\)$/.test(line))).toBe(
    true,
  );
});

test('an option that it does not take is named, exit code 2', async () => {
  const bench = join(import.meta.dirname, '../../bench/run.mjs');
  const failure = await promisify(execFile)(process.execPath, [bench, '--goals', '--only', 'x']).catch(
    (error) => error,
  );
  expect(failure.code).toBe(2);
  expect(failure.stderr).toContain('--goals takes no');
});
