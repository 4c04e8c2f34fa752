import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { analysis, connection, finding } from '../../../testing/analysis.ts';
import { DEFAULT_LIMITS, toReportData } from '../data.ts';
import { clamped, firstView, nextView, panned, wholeOf, zoomed } from './state.ts';

const S = 1e9;
const data = toReportData(
  analysis({
    connections: [connection({ id: 1 }), connection({ id: 2, start: 1 * S, end: 11 * S })],
    findings: [
      finding({ connection: undefined }),
      finding({ connection: 2, start: 4 * S, end: 5 * S, frames: [40, 50] }),
      finding({ connection: 1, start: 0, end: 1 * S }),
    ],
  }),
  '',
  DEFAULT_LIMITS,
);

describe('the view', () => {
  const view = firstView(data);

  test('begins with the connection of the worst finding that has one', () => {
    expect(view).toEqual({ connection: 2, window: undefined, packet: undefined });
    expect(firstView({ ...data, findings: [] }).connection).toBe(1);
    expect(firstView({ ...data, findings: [], connections: [] }).connection).toBeUndefined();
  });

  test('a finding brings its connection, its time with a margin, and its first packet', () => {
    const shown = nextView(data, view, { type: 'finding', finding: data.findings[1], frame: undefined });
    expect(shown).toEqual({
      connection: 2,
      window: { from: 3.8 * S, to: 5.2 * S },
      packet: { frame: 40, part: undefined },
    });
    expect(
      nextView(data, view, { type: 'finding', finding: data.findings[1], frame: 50 }).packet?.frame,
    ).toBe(50);
  });

  test('one that takes all of the time needs no window; one without a connection changes nothing', () => {
    expect(
      nextView(data, view, { type: 'finding', finding: data.findings[2], frame: undefined }),
    ).toMatchObject({
      connection: 1,
      window: undefined,
    });
    expect(nextView(data, view, { type: 'finding', finding: data.findings[0], frame: undefined })).toBe(view);
  });

  test('another connection begins anew, the same one stays as it is', () => {
    const zoomedIn = { connection: 2, window: { from: 2 * S, to: 3 * S }, packet: { frame: 1, part: 0 } };
    expect(nextView(data, zoomedIn, { type: 'connection', id: 2 })).toBe(zoomedIn);
    expect(nextView(data, zoomedIn, { type: 'connection', id: 1 })).toEqual({
      connection: 1,
      window: undefined,
      packet: undefined,
    });
  });
});

describe('windows of time', () => {
  const whole = { from: 1 * S, to: 11 * S };
  const windows = fc
    .tuple(fc.integer({ min: 0, max: 12 * S }), fc.integer({ min: 1000, max: 12 * S }))
    .map(([from, span]) => ({ from, to: from + span }));

  test('stay within the whole and keep their span, whatever is done', () => {
    fc.assert(
      fc.property(windows, fc.double({ min: 0.01, max: 100, noNaN: true }), (window, factor) => {
        for (const next of [
          clamped(window, whole),
          zoomed(window, factor, whole),
          panned(window, factor, whole),
        ]) {
          if (next === undefined) continue;
          expect(next.from).toBeGreaterThanOrEqual(whole.from - 1);
          expect(next.to).toBeLessThanOrEqual(whole.to + 1);
          expect(next.to - next.from).toBeGreaterThan(999);
        }
        const moved = panned(window, -factor, whole);
        if (moved) expect(moved.to - moved.from).toBeCloseTo(window.to - window.from, -1);
      }),
    );
  });

  test('zoom about their middle', () => {
    expect(zoomed({ from: 4 * S, to: 8 * S }, 0.5, whole)).toEqual({ from: 5 * S, to: 7 * S });
    expect(zoomed({ from: 5 * S, to: 7 * S }, 2, whole)).toEqual({ from: 4 * S, to: 8 * S });
    expect(zoomed({ from: 4 * S, to: 8 * S }, 10, whole)).toBeUndefined();
  });

  test('a connection of a single moment has a microsecond', () => {
    expect(wholeOf({ start: 5, end: 5 })).toEqual({ from: 5, to: 1005 });
  });
});
