import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { analysis, connection, finding, ladderPacket, message } from '../../testing/analysis.ts';
import type { PlotPoint } from '../flow/analysis.ts';
import { PLOT_CAUSES } from '../flow/record/series.ts';
import { DEFAULT_LIMITS, fairShare, findPacket, fromColumns, toReportData } from './data.ts';

const point = (given: Partial<PlotPoint>): PlotPoint => ({
  time: 0,
  psn: 0,
  requester: 'a',
  kind: 'request',
  frame: 1,
  ...given,
});

const kinds = ['request', 'retransmission', 'response', 'ack', 'nak', 'rnr', 'cnp', 'marked'] as const;

test('plots come back from their columns as they were', () => {
  const common = {
    time: fc.integer({ min: -1000, max: 2 ** 52 }),
    psn: fc.nat({ max: 2 ** 40 }),
    requester: fc.constantFrom('a' as const, 'b' as const),
    frame: fc.integer({ min: 1, max: 2 ** 40 }),
  };
  const again = { kind: fc.constant('retransmission' as const), cause: fc.constantFrom(...PLOT_CAUSES) };
  const points = fc.array(
    fc.oneof(fc.record({ ...common, kind: fc.constantFrom(...kinds) }), fc.record({ ...common, ...again })),
  );
  fc.assert(
    fc.property(points, (plot) => {
      const data = toReportData(analysis({ connections: [connection({ plot })] }), '', DEFAULT_LIMITS);
      expect(fromColumns(data.connections[0].plot)).toEqual(plot);
    }),
  );
});

test('a fair share: small ones whole, none more than the share, as much as fits', () => {
  fc.assert(
    fc.property(fc.array(fc.nat({ max: 1000 }), { minLength: 1 }), fc.nat({ max: 5000 }), (counts, total) => {
      const share = fairShare(counts, total);
      const used = counts.reduce((sum, count) => sum + Math.min(count, share), 0);
      expect(used).toBeLessThanOrEqual(total);
      if (share === Infinity) return;
      expect(counts.reduce((sum, count) => sum + Math.min(count, share + 1), 0)).toBeGreaterThan(total);
    }),
  );
});

describe('bounds', () => {
  const limits = { connections: 2, points: 20, messages: 10, packets: 10, exchanges: 2 };
  const many = <T>(count: number, make: (i: number) => T) => Array.from({ length: count }, (_, i) => make(i));

  test('points that matter are kept, the others thinned evenly, in order', () => {
    const plot = many(1000, (i) =>
      point({ time: i, frame: i + 1, kind: i % 100 === 50 ? 'nak' : 'request' }),
    );
    const { connections, left } = toReportData(analysis({ connections: [connection({ plot })] }), '', limits);
    const kept = fromColumns(connections[0].plot);
    expect(kept).toHaveLength(20);
    expect(left.points).toBe(980);
    expect(kept.filter(({ kind }) => kind === 'nak')).toHaveLength(10);
    expect(kept.map(({ time }) => time)).toEqual(kept.map(({ time }) => time).sort((a, b) => a - b));
    expect(kept.at(-1)!.time).toBeGreaterThan(850);
  });

  test('failed and retransmitted messages, and packets behind findings, come before the first ones', () => {
    const one = connection({
      messages: many(100, (i) => message({ id: i + 1, outcome: i === 70 ? 'failed' : 'completed' })),
      ladder: many(100, (i) => ladderPacket({ frame: i + 1 })),
    });
    const findings = [finding({ frames: [90, 80] })];
    const { connections, left } = toReportData(analysis({ connections: [one], findings }), '', limits);
    expect(connections[0].messages.map(({ id }) => id)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 71]);
    expect(connections[0].ladder.map(({ frame }) => frame)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 80, 90]);
    expect(left).toMatchObject({ messages: 90, packets: 90 });
  });

  test('connections with findings, then those with most packets', () => {
    const connections = many(5, (i) => connection({ id: i + 1 }));
    connections[1].aToB.packets = 10;
    const data = toReportData(analysis({ connections, findings: [finding({ connection: 4 })] }), '', limits);
    expect(data.connections.map(({ id }) => id)).toEqual([2, 4]);
    expect(data.left.connections).toBe(3);
  });
});

test('a packet by frame, and by part where one is named', () => {
  const ladder = [ladderPacket({ frame: 3 }), ladderPacket({ frame: 3, part: 1 })];
  expect(findPacket({ ladder }, 3)).toBe(ladder[0]);
  expect(findPacket({ ladder }, 3, 1)).toBe(ladder[1]);
  expect(findPacket({ ladder }, 4)).toBeUndefined();
});
