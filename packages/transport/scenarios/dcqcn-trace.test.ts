/**
 * DCQCN's two points, compared step by step with a second program that another hand wrote from the paper, without knowledge of the engine
 * (test/sim/dcqcn-reference.mjs). The reference counts the situations of a trace; each has a least number of times.
 */
import { Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { notificationPoint, PAPER, reactionPoint } from '../../../test/sim/dcqcn-reference.mjs';
import { Dcqcn } from '../src/congestion/dcqcn.ts';
import { CONGESTION_DEFAULTS, type Congestion } from '../src/congestion/options.ts';
import { ByHand } from '../testing/by-hand.ts';
import { drawDcqcnEvents, drawMarks } from '../testing/dcqcn-events.ts';

const EVENTS = 10_000;
/** The engine rounds each sum and product to a double, the reference only the result. */
const EQUAL = 1e-9;
const CE = 3;

interface ReferenceState {
  rate: number;
  target: number;
  alpha: number;
}

/** The reference's parameters, under the engine's names. */
const optionsOf = (parameters: typeof PAPER): Congestion => ({
  ...CONGESTION_DEFAULTS,
  controller: 'dcqcn',
  rateReduceMonitorPeriod: parameters.monitor,
  g: parameters.g,
  initialAlpha: parameters.initialAlpha,
  alphaPeriod: parameters.alphaPeriod,
  rpgTimeReset: parameters.timer,
  rpgByteReset: parameters.bytes,
  rpgThreshold: parameters.threshold,
  rpgAiRate: parameters.additive,
  rpgHaiRate: parameters.hyper,
  rpgMinRate: parameters.floorRate,
  rpgMaxRate: parameters.lineRate,
});

/** The greatest share by which the engine's values differ from the reference's. */
function distance(engine: Dcqcn, { rate, target, alpha }: ReferenceState): number {
  const pairs = [
    [engine.currentRate, rate],
    [engine.targetRate, target],
    [engine.alpha, alpha],
  ];
  return Math.max(...pairs.map(([a, b]) => Math.abs(a - b) / b));
}

/** Every situation that the reference distinguishes, and how often each trace of 10,000 events has to come through it. */
const LEAST: Record<string, number> = {
  cut: 500,
  'cut before any step': 50,
  'cut in fast recovery': 50,
  'cut in additive increase': 20,
  'cut in hyper increase': 20,
  'cut at the time of the timer': 20,
  'cut while the timer runs': 50,
  'cut while the byte counter runs': 50,
  'cut at the end of the monitor period': 20,
  'cut from the line rate': 20,
  'cut from the floor': 20,
  'CNP ignored': 20,
  'rate held at the floor': 20,
  'target held at the line rate': 100,
  'alpha decays': 500,
  'alpha decays by several periods in one event': 50,
  'fast by timer': 100,
  'fast by bytes': 100,
  'fast by timer and bytes at once': 20,
  'additive by timer': 100,
  'additive by bytes': 100,
  'additive by timer and bytes at once': 20,
  'hyper by timer': 100,
  'hyper by bytes': 100,
  'hyper by timer and bytes at once': 20,
  'fast, max(T, BC) = F − 1': 50,
  'additive, max(T, BC) = F': 50,
  'additive, min(T, BC) = F': 50,
  'hyper, min(T, BC) = F + 1': 50,
  'several timer periods in one event': 50,
  'several byte counter periods in one event': 50,
  'byte counter expires thanks to its remainder': 50,
  'byte counter expires with no remainder': 50,
  'bytes at the time of the timer': 50,
};

const SETTINGS: [string, Partial<typeof PAPER>][] = [
  ['the paper’s parameters', {}],
  ['a byte counter as quick as the timer', { bytes: 60_000, lineRate: 10_000 }],
  [
    'near to mlx5’s sizes',
    {
      g: 5 / 1024,
      initialAlpha: 1023 / 1024,
      threshold: 2,
      additive: 5,
      hyper: 50,
      timer: 300,
      bytes: 2 ** 21,
      lineRate: 1000,
    },
  ],
  [
    'other periods, a floor of 100 Mb/s',
    { alphaPeriod: 50, timer: 65, threshold: 3, floorRate: 100, monitor: 10 },
  ],
  ['a threshold of 1: no fast recovery', { threshold: 1, lineRate: 10_000 }],
];

describe.each(SETTINGS)('the reaction point: %s', (_what, setting) => {
  test.each([1, 2])(`agrees after each of ${EVENTS} events, seed %i`, (seed) => {
    const parameters: typeof PAPER = { ...PAPER, ...setting };
    const events = drawDcqcnEvents(seed, EVENTS, parameters);
    const { states, visits } = reactionPoint(events, parameters);
    const path = { clock: new Float64Array(1), least: 0 };
    // The engine computes what is due when it is asked: once at every event, once at few.
    const often = new Dcqcn(path, optionsOf(parameters));
    const seldom = new Dcqcn(path, optionsOf(parameters));
    for (const [index, { at, kind, bytes }] of events.entries()) {
      path.clock[0] = at;
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
    const reachable = Object.keys(LEAST).filter((name) => parameters.threshold > 1 || !name.includes('fast'));
    expect(Object.keys(visits).toSorted()).toEqual(reachable.toSorted());
    expect(reachable.filter((name) => visits[name] < LEAST[name])).toEqual([]);
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
      adapter.advance();
      send();
    }
    hand.now = end;
  };
  const marks = drawMarks(7, EVENTS, interval);
  for (const at of marks) {
    passTimeTo(at);
    hand.putFrom({ trafficClass: CE }, { opcode: Opcode.RC_ACKNOWLEDGE, psn: 0, aeth: { syndrome: 31 } });
    send();
  }
  passTimeTo(hand.now + 1000);
  const { times, visits } = notificationPoint(marks, interval);
  expect(sent).toEqual(times);
  expect(Math.min(...(Object.values(visits) as number[]))).toBeGreaterThan(20);
});
