import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BinnedSums, commonSums, LatencySeries, PlotKind, PlotSeries, PointBudget } from './series.ts';

const added = (amounts: readonly (readonly [number, number])[]): BinnedSums => {
  const sums = new BinnedSums();
  for (const [time, amount] of amounts) sums.add(time, amount);
  return sums;
};

test('sums over time: nothing is lost, both directions have the same spans', () => {
  const amounts = fc
    .array(fc.tuple(fc.integer({ min: 0, max: 1e10 }), fc.integer({ min: 0, max: 4096 })), { maxLength: 200 })
    .map((list) => list.sort(([a], [b]) => a - b));
  fc.assert(
    fc.property(amounts, amounts, (one, two) => {
      const { span, start, sums } = commonSums([added(one), added(two)]);
      const [a, b] = sums as [number[], number[]];
      const sum = (list: readonly number[]) => list.reduce((x, y) => x + y, 0);
      expect(sum(a)).toBe(sum(one.map(([, amount]) => amount)));
      expect(sum(b)).toBe(sum(two.map(([, amount]) => amount)));
      expect(a.length).toBe(b.length);
      expect(a.length).toBeLessThanOrEqual(256);
      const times = [...one, ...two].map(([time]) => time);
      if (times.length === 0) return;
      expect(start).toBeLessThanOrEqual(Math.min(...times));
      expect(start + span * a.length).toBeGreaterThan(Math.max(...times));
    }),
  );
});

/** A budget of which nothing is left. */
function spent(): PointBudget {
  const budget = new PointBudget();
  while (budget.take(1));
  return budget;
}

test('points: a direction has all of 10,000 packets as long as the budget lasts', () => {
  const budget = new PointBudget();
  const counts = Array.from({ length: 40 }, () => {
    const plot = new PlotSeries(budget);
    for (let i = 0; i < 10_000; i++) plot.add(i, 10 + i, i + 1, PlotKind.REQUEST);
    return plot.points('a', 0).length;
  });
  expect(counts[0]).toBe(10_000);
  expect(counts.at(-1)).toBeLessThanOrEqual(1025);
  expect(counts.reduce((sum, count) => sum + count, 0)).toBeLessThan(300_000);
});

test('points: bounded, the first and the last are there, rare ones are not thinned by common ones', () => {
  const plot = new PlotSeries(spent());
  for (let i = 0; i < 100_000; i++) {
    plot.add(i, 10 + i, i + 1, i % 1000 === 0 ? PlotKind.NAK : PlotKind.REQUEST);
  }
  const points = plot.points('a', 1000);
  const requests = points.filter(({ kind }) => kind === 'request');
  expect(points.length).toBeLessThanOrEqual(2049);
  expect(points.filter(({ kind }) => kind === 'nak').length).toBe(100);
  expect(requests[0]).toEqual({ time: 1, psn: 11, requester: 'a', kind: 'request', frame: 2 });
  expect(points.some(({ frame }) => frame === 100_000)).toBe(true);
  // Answers carry the other end's PSNs, counted from its turn on.
  expect(points.find(({ kind }) => kind === 'nak')).toMatchObject({ requester: 'b', psn: 1010 });
});

test('points: retransmissions for a NAK do not crowd the NAKs out', () => {
  const plot = new PlotSeries(spent());
  for (let i = 0; i < 50_000; i++) {
    plot.add(i, 10 + i, i + 1, i % 5000 === 0 ? PlotKind.NAK : PlotKind.RETRANSMISSION);
  }
  expect(plot.points('a', 0).filter(({ kind }) => kind === 'nak').length).toBe(10);
});

test('latencies: bounded, and the worst stays', () => {
  const series = new LatencySeries();
  const point = { ackRoundTrip: 500, operation: 'SEND' };
  for (let i = 0; i < 50_000; i++)
    series.add({ ...point, time: i, nanoseconds: i === 31_415 ? 1e9 : 1000, message: i });
  expect(series.points.length).toBeLessThanOrEqual(1025);
  expect(series.points).toContainEqual({ ...point, time: 31_415, nanoseconds: 1e9, message: 31_415 });
});
