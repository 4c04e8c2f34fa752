import { expect, test } from 'vitest';
import { planOf } from '../plan.ts';
import { outJson } from './json-file.ts';
import { histogram, latencyFigures } from './latency.ts';
import type { PerfResult } from './result.ts';
import { table } from './table.ts';

/** Times at which messages were posted, from the µs between them. */
function postedAt(gaps: readonly number[]): Float64Array {
  let at = 0;
  return Float64Array.from([0, ...gaps.map((gap) => (at += gap / 1000))]);
}
const times = (gaps: readonly number[]) => ({ posted: postedAt(gaps), counted: 0, seconds: 0 });

test('figures of a latency run: sorted, without the two longest, halved for a round trip', () => {
  const gaps = [40, 20, 30, 50, 1000, 10, 2000];
  const { percentiles, ...figures } = latencyFigures(times(gaps), 2, 8, 2);
  expect(figures).toMatchObject({ size: 2, iterations: 8 });
  for (const [name, value] of Object.entries({ min: 5, max: 500, typical: 15, average: 15 }))
    expect(figures[name as 'min']).toBeCloseTo(value);
  expect(figures.deviation).toBeCloseTo(Math.sqrt(50));
  expect(percentiles!['50']).toBe(figures.typical);
  expect(percentiles!['99.9']).toBeCloseTo(500);
  expect(latencyFigures(times(gaps), 2, 8, 1).typical).toBeCloseTo(30);
});

test('with a duration: the time of one message, and messages a second', () => {
  const counted = { posted: new Float64Array(0), counted: 1000, seconds: 2 };
  expect(latencyFigures(counted, 2, 0, 2)).toEqual({ size: 2, iterations: 1000, average: 1000, rate: 500 });
});

test('a histogram by powers of two, with the empty ranges between', () => {
  expect(histogram(Float64Array.of(3, 3.9, 17))).toEqual([
    { from: 2, count: 2 },
    { from: 4, count: 0 },
    { from: 8, count: 0 },
    { from: 16, count: 1 },
  ]);
});

const common = {
  role: 'client' as const,
  mtu: 4096,
  peerVersion: '6.06',
  rdmaCm: false,
  gigabits: false,
  localAddress: '10.0.0.1',
  remoteAddress: '10.0.0.2',
  retransmittedPackets: 0,
  icrcErrors: 0,
  icrcOutOfWindow: 0,
};
const run = { size: 65_536, iterations: 1000, peak: 200, average: 123.456, messageRate: 0.001975 };
const bandwidth: PerfResult = {
  ...common,
  plan: planOf({ verb: 'write', measure: 'bw', iters: 1000 }),
  measure: 'bw',
  measuredBy: 'this side',
  runs: [run],
};

test("the table has perftest's columns", () => {
  const lines = table(bandwidth);
  const head = lines.find((line) => line.includes('#bytes'))!;
  expect(head.trim().split(/\s{2,}/)).toEqual([
    '#bytes',
    '#iterations',
    'BW peak[MiB/sec]',
    'BW average[MiB/sec]',
    'MsgRate[Mpps]',
  ]);
  expect(lines).toContainEqual(expect.stringMatching(/^ 65536 +1000 +200\.00 +123\.46 +0\.001975$/));
  expect(lines.at(-1)).toMatch(/^ Measured by this side: from posting/);
});

test("with both sides' figures below the sum", () => {
  const lines = table({ ...bandwidth, measuredBy: 'both sides', local: run, remote: run }, true);
  expect(lines.filter((line) => line.includes('123.46'))).toHaveLength(3);
});

test('figures in Gb/s below 0.1 have six digits', () => {
  const runs = [{ ...run, peak: 0.0912, average: 0.0123456 }];
  expect(table({ ...bandwidth, gigabits: true, runs })).toContainEqual(expect.stringContaining('0.012346'));
});

test("--out_json has perftest's names", () => {
  expect(outJson(bandwidth)).toMatchObject({
    test_info: { test: 'RDMA_Write_BW_Test', Connection_type: 'RC', Mtu: 4096 },
    results: { MsgSize: 65_536, n_iterations: 1000, BW_peak: 200, BW_average: 123.456, MsgRate: 0.001975 },
  });
});
