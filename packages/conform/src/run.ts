/** Plays rules, one after the other, each with a verdict. */
import { setImmediate as turn } from 'node:timers/promises';
import { type Bench, Case } from './case.ts';
import { Untestable } from './device.ts';
import { ladderOf } from './ladder.ts';
import type { Entry } from './line.ts';
import type { Need } from './needs.ts';
import type { CaseConnection } from './passive/connection.ts';
import type { NamedRule, Rule } from './rule.ts';

/**
 * - `pass`, `deviation`: the device does what the rule requires, or does not
 * - `known`, `changed`, `mended`: compared with a list of known deviations: the same, another one, none any more
 * - `not testable`: the device, or the way to it, has not what the rule needs
 * - `broken`: the tester or the way to the device failed; no word about the device
 * - `unsteady`: played more than once, the verdicts differ
 */
export type Verdict =
  | 'pass'
  | 'deviation'
  | 'known'
  | 'changed'
  | 'mended'
  | 'not testable'
  | 'broken'
  | 'unsteady';

export interface Result {
  rule: NamedRule;
  verdict: Verdict;
  /** Deviations: the wanted and the seen; otherwise, why there is no verdict. */
  why: readonly string[];
  /** Values without a verdict. */
  notes: readonly string[];
  /** Needs that the rule made use of. */
  used: ReadonlySet<Need>;
  /** Its packets; of very many, the first ones and the last. */
  entries: readonly Entry[];
  /** Packets that `entries` has not. */
  leftOut?: number;
  /** Rules in whose packets a passive rule saw the deviation. */
  seenIn?: readonly string[];
  /** Its reliable connections. */
  connections: readonly CaseConnection[];
  /** Text of the packets, with relative PSNs. */
  ladder: string;
  /** ms, of the line's clock. */
  time: number;
}

/** Packets that a result keeps: a device that floods in each rule must not fill the memory. No rule that a device keeps has so many. */
const MOST_KEPT = 4000;

/** The first packets and the last. */
function kept(entries: readonly Entry[]): Pick<Result, 'entries' | 'leftOut'> {
  const leftOut = entries.length - MOST_KEPT;
  if (leftOut <= 0) return { entries };
  return { entries: [...entries.slice(0, MOST_KEPT / 2), ...entries.slice(-MOST_KEPT / 2)], leftOut };
}

/** Plays one rule. It never rejects: a failure is in the verdict. */
export async function play(rule: Rule, bench: Bench): Promise<Result> {
  const t = new Case(rule.needs, bench);
  const start = bench.line.now();
  const { verdict, why } = await judge(rule, t);
  const ladder = ladderOf(t);
  // A connection that can't be closed is the next rule's trouble, if it is any.
  const closing = await t.close().then(
    () => [],
    (error: unknown) => [`closing: ${textOf(error)}`],
  );
  // Whatever was seen behind the device's end is no deviation.
  const isLost = bench.device.isLost === true && verdict === 'deviation';
  const { notes, used, connections } = t;
  const time = bench.line.now() - start;
  return {
    rule,
    verdict: isLost ? 'broken' : verdict,
    why: isLost ? [...why, ...closing] : why,
    notes: isLost ? notes : [...notes, ...closing],
    used,
    ...kept(t.entries),
    connections,
    ladder,
    time,
  };
}

async function judge(rule: Rule, t: Case): Promise<Pick<Result, 'verdict' | 'why'>> {
  try {
    await rule.play(t);
    return { verdict: t.deviations.length > 0 ? 'deviation' : 'pass', why: t.deviations };
  } catch (error) {
    const why = [...t.deviations, textOf(error)];
    return { verdict: error instanceof Untestable ? 'not testable' : 'broken', why };
  }
}

const textOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

export interface RunOptions {
  /** Called after each rule. */
  onResult?: (result: Result) => void;
  /** Called after each playing of a rule: with `repeat`, more often than `onResult`. */
  onPlayed?: (result: Result) => void;
  signal?: AbortSignal;
  /** Play each rule so many times; one whose verdicts differ is `unsteady`. Default 1. */
  repeat?: number;
  /**
   * Whether a deviation is played again, with more patience, before it is one: a machine that is busy makes a device late. If the rule
   * then passes, it is `unsteady`. Not with `repeat`, and no more once second playings that did not pass have taken 30 s.
   */
  confirms?: (result: Result) => boolean;
}

/** Patience of the second playing, as a multiple of the usual one. */
const MORE_PATIENCE = 4;
/**
 * ms of second playings that changed nothing: behind them, deviations are believed at once, as a device that deviates from everything is not late.
 * The playing that goes beyond is finished.
 */
const MOST_CONFIRMING = 30_000;

/** Plays rules on one bench, or on a bench of its own each; stops early when the signal is aborted, or the way to the device is lost. */
export async function run(
  rules: readonly Rule[],
  bench: Bench | (() => Bench),
  options: RunOptions = {},
): Promise<Result[]> {
  const { onResult, signal } = options;
  const results: Result[] = [];
  let confirming = 0;
  for (const rule of rules) {
    if (signal?.aborted) break;
    const first = await playOften(rule, bench, options);
    if (first === undefined) break;
    const [result, time] = await confirmed(first, rule, bench, options, MOST_CONFIRMING - confirming);
    confirming += time;
    results.push(result);
    onResult?.(result);
    if (typeof bench !== 'function' && bench.device.isLost) break;
  }
  return results;
}

/** Undefined where the signal is aborted before the last time. */
async function playOften(
  rule: Rule,
  bench: Bench | (() => Bench),
  { repeat: times = 1, signal, onPlayed }: RunOptions,
): Promise<Result | undefined> {
  const played: Result[] = [];
  for (let i = 0; i < times; i++) {
    const result = await play(rule, typeof bench === 'function' ? bench() : bench);
    played.push(result);
    onPlayed?.(result);
    // In virtual time nothing else lets a signal of the process come.
    await turn();
    if (signal?.aborted && i + 1 < times) return undefined;
  }
  return sumOf(played);
}

/** The result of a rule that was played several times. */
function sumOf(played: readonly Result[]): Result {
  const worst = played.find(({ verdict }) => verdict !== 'pass') ?? played[0];
  const counts = played.filter(({ verdict }) => verdict === worst.verdict).length;
  if (counts === played.length) return worst;
  const often = `${worst.verdict} in ${counts} of ${played.length} plays`;
  return { ...worst, verdict: 'unsteady', why: [often, ...worst.why] };
}

/**
 * A result, or what becomes of it in a second playing with more patience; and the ms that this took for nothing: none if the rule passes.
 * @param left ms of these that there may still be: without any, it is not played again
 */
async function confirmed(
  first: Result,
  rule: Rule,
  bench: Bench | (() => Bench),
  { repeat = 1, confirms, onPlayed, signal }: RunOptions,
  left: number,
): Promise<readonly [result: Result, time: number]> {
  const isToRepeat = repeat === 1 && left > 0 && first.verdict === 'deviation' && confirms?.(first);
  if (!isToRepeat || typeof bench === 'function' || signal?.aborted) return [first, 0];
  const { waits } = bench;
  bench.waits = { ...waits, patience: MORE_PATIENCE * waits.patience };
  const second = await play(rule, bench);
  bench.waits = waits;
  onPlayed?.(second);
  if (second.verdict === 'pass') return [sumOf([first, second]), 0];
  // A second one that could not be played says nothing about the first.
  return [second.verdict === 'deviation' ? second : first, second.time];
}
