/** DCQCN's two points, step by step beside a second program that was written from the paper alone (test/sim/dcqcn-reference.mjs). */
import { Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { drawEvents, notificationPoint, PAPER, reactionPoint } from '../../../test/sim/dcqcn-reference.mjs';
import { ByHand } from '../testing/by-hand.ts';
import { Dcqcn } from './congestion/dcqcn.ts';
import { CONGESTION_DEFAULTS, type Congestion } from './congestion/options.ts';

const EVENTS = 10_000;
/** Both halve and add the same numbers; where a power stands for many products, the last digits differ. */
const EQUAL = 1e-9;
const MBIT = 1e6;
const CE = 3;

interface ReferenceEvent {
  at: number;
  kind: 'sent' | 'cnp' | 'time';
  bytes: number;
}
interface ReferenceState {
  rate: number;
  target: number;
  alpha: number;
}

/** The reference's parameters, under the engine's names. */
const optionsOf = (parameters: typeof PAPER): Congestion => ({
  ...CONGESTION_DEFAULTS,
  controller: 'dcqcn',
  // The reference obeys every CNP.
  rateReduceMonitorPeriod: 0,
  g: parameters.g,
  alphaPeriod: parameters.alphaPeriod,
  rpgTimeReset: parameters.timerPeriod,
  rpgByteReset: parameters.byteCount,
  rpgThreshold: parameters.threshold,
  rpgAiRate: parameters.additive / MBIT,
  rpgHaiRate: parameters.hyper / MBIT,
  rpgMinRate: parameters.minRate / MBIT,
  rpgMaxRate: parameters.lineRate / MBIT,
});

/** The greatest share by which the engine's values differ from the reference's. */
function distance(engine: Dcqcn, { rate, target, alpha }: ReferenceState): number {
  const pairs = [
    [engine.currentRate * MBIT, rate],
    [engine.targetRate * MBIT, target],
    [engine.alpha, alpha],
  ];
  return Math.max(...pairs.map(([a, b]) => Math.abs(a - b) / b));
}

const SETTINGS: [string, Partial<typeof PAPER>][] = [
  ['the paper’s parameters', {}],
  ['a byte counter as quick as the timer', { byteCount: 60_000, lineRate: 10e9 }],
  [
    'near to mlx5’s sizes',
    {
      g: 5 / 1024,
      threshold: 2,
      additive: 5e6,
      hyper: 50e6,
      timerPeriod: 300,
      byteCount: 2 ** 21,
      lineRate: 1e9,
    },
  ],
  ['other periods, a floor of 100 Mb/s', { alphaPeriod: 50, timerPeriod: 65, threshold: 3, minRate: 100e6 }],
];

describe.each(SETTINGS)('the reaction point: %s', (_what, setting) => {
  test.each([1, 2, 3])(`agrees after each of ${EVENTS} events, seed %i`, (seed) => {
    const parameters = { ...PAPER, ...setting };
    const events: ReferenceEvent[] = drawEvents(seed, EVENTS, parameters);
    const { states, counts } = reactionPoint(events, parameters);
    const path = { now: 0, least: 0 };
    // The engine computes what is due when it is asked: once at every event, once at few.
    const often = new Dcqcn(path, optionsOf(parameters));
    const seldom = new Dcqcn(path, optionsOf(parameters));
    for (const [index, { at, kind, bytes }] of events.entries()) {
      path.now = at;
      for (const engine of [often, seldom]) {
        if (kind === 'cnp') engine.onCnp();
        else if (kind === 'sent') engine.onSent(bytes);
      }
      const looked = index % 97 === 0 ? [often, seldom] : [often];
      for (const engine of looked) {
        const off = distance(engine, states[index]);
        if (!(off <= EQUAL)) throw new Error(`event ${index} at ${at} µs (${kind}): off by ${off}`);
        expect(engine.check()).toBeUndefined();
      }
    }
    // It went through every phase, to slow rates and back to the line rate.
    expect(Math.min(...(Object.values(counts) as number[]))).toBeGreaterThan(EVENTS / 50);
    const rates = states.map(({ rate }: ReferenceState) => rate);
    expect(Math.min(...rates)).toBeLessThan(parameters.lineRate / 20);
    expect(rates.filter((rate: number) => rate > 0.999 * parameters.lineRate).length).toBeGreaterThan(50);
  });
});

test.each([4, 50, 130])('the notification point: CNPs at the same times, interval %i µs', (interval) => {
  const hand = new ByHand({}, { congestion: { controller: 'dcqcn', minTimeBetweenCnps: interval } });
  const { adapter } = hand.side;
  const sent: number[] = [];
  const send = () => {
    for (const packet of hand.out()) if (packet[0] === Opcode.CNP) sent.push(hand.now);
  };
  const passTimeTo = (end: number) => {
    for (let next = adapter.nextDeadline(); next <= end; next = adapter.nextDeadline()) {
      hand.now = next;
      adapter.advance(next);
      send();
    }
    hand.now = end;
  };
  const marks: number[] = drawEvents(7, EVENTS, PAPER).map(({ at }: ReferenceEvent) => at);
  for (const at of marks) {
    passTimeTo(at);
    hand.putFrom({ trafficClass: CE }, { opcode: Opcode.RC_ACKNOWLEDGE, psn: 0, aeth: { syndrome: 31 } });
    send();
  }
  passTimeTo(hand.now + 1000);
  expect(sent).toEqual(notificationPoint(marks, { interval, atWindowEnd: true }));
  expect(sent.length).toBeGreaterThan(EVENTS / 10);
  expect(sent.length).toBeLessThan(2 * EVENTS);
});
