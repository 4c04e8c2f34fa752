/** Rules that wait for long: played with `--slow` (IBTA vol 1 §9.7.5.2.8, §9.7.6.1.3, §9.9.2). */
import { ackTimeoutMicroseconds, rnrTimerMicroseconds } from '@node-roce/wire';
import type { Case } from '../case.ts';
import type { Entry } from '../line.ts';
import { type Rule, type RuleSpec, rule } from '../rule.ts';
import type { Session } from '../session.ts';
import { CROSSING } from './crossing.ts';

/** ms. */
const timeoutOf = (code: number): number => ackTimeoutMicroseconds(code) / 1000;
const rnrTimeOf = (code: number): number => rnrTimerMicroseconds(code) / 1000;

const slow = (id: string, spec: Omit<RuleSpec, 'needs' | 'slow'>, play: Rule['play']): Rule =>
  rule(id, { needs: ['rc', 'post', 'completions'], slow: true, ...spec }, play);

/** RNR timer codes, the longest time first: code 0 is longer than all others. */
const CODES_BY_TIME = [0, ...Array.from({ length: 31 }, (_, i) => 31 - i)];
/** Connections that wait at the same time. */
const AT_ONCE = 8;

/** The part of a time that timers rounded down to ticks of 4 ms leave. */
const TICKS = 0.98;

/** Refuses the SEND at `n`. @returns the time */
const refuse = (s: Session, n: number, code: number): number =>
  s.acknowledge(n, { syndrome: 0x20 | code }).time;

/**
 * Waits until the SEND at `n`, refused at `start`, comes back. A device that asks again early may have done so before the NAK reached it; one that
 * does not wait at all is not heard of again.
 */
async function comesBack(s: Session, t: Case, n: number, code: number, start: number): Promise<void> {
  const least = rnrTimeOf(code);
  const isAgain = (entry: Entry) =>
    s.requestAt(entry) === n && entry.time - start >= Math.min(CROSSING, least / 2);
  const came = await s.allUntil(isAgain, least * 4 + t.waits.patience);
  const again = came.find(isAgain);
  t.want(again !== undefined, `code ${code}: no retransmission`);
  if (again !== undefined) t.want(again.time - start >= least, `code ${code}: came back too early`);
}

export const slowRules = [
  slow(
    'RNR-31',
    {
      title: 'RNR NAK with each of the 32 timer codes: waits at least its time',
      section: '9.7.5.2.8',
      text: 'Code 0 is 655 ms, not none; a table with one wrong row shows at that code only.',
    },
    async (t) => {
      const sessions: Session[] = [];
      for (let i = 0; i < AT_ONCE; i++) sessions.push(await t.req({ timeout: 20, rnrRetry: 7 }));
      for (let round = 0; round * AT_ONCE < CODES_BY_TIME.length; round++) {
        const waiting = sessions.map((s, i) => ({ s, code: CODES_BY_TIME[round * AT_ONCE + i], start: 0 }));
        // The second one: a device that asks again early repeats the last packet.
        for (const { s, code } of waiting) await s.post('send', { id: 2 * code, length: 8, count: 2 });
        for (const { s } of waiting) await s.requests(2);
        await t.pass(CROSSING);
        for (const each of waiting) {
          await each.s.all(0);
          each.start = refuse(each.s, 2 * round, each.code);
        }
        for (const { s, code, start } of waiting) await comesBack(s, t, 2 * round, code, start);
        await t.pass(CROSSING);
        for (const { s, code } of waiting) {
          s.acknowledge(2 * round + 1);
          await s.completed([`${2 * code}:SUCCESS`, `${2 * code + 1}:SUCCESS`], `code ${code}`);
        }
        await t.pass(CROSSING);
        for (const { s } of waiting) await s.all(0);
      }
    },
  ),
  slow(
    'RNR-32',
    {
      title: 'RNR NAKs with the longest times: the connection ends after 1 + rnr_retry of them, not before',
      section: '9.9.2.4.1',
      text: 'A receiver that is busy for a second asked for this time.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20, rnrRetry: 2 });
      await s.post('send', { id: 1, length: 8, count: 2 });
      await s.requests(2);
      for (const code of [0, 31]) {
        await s.all(CROSSING);
        await comesBack(s, t, 0, code, refuse(s, 0, code));
      }
      await s.noCompletion('two RNR NAKs with rnr_retry 2', CROSSING);
      s.acknowledge(0, { syndrome: 0x20 | 26 });
      await s.completed(['1:RNR_RETRY_EXC_ERR', '2:WR_FLUSH_ERR'], 'the third one');
    },
  ),
  ...([18, 19] as const).map((timeout) =>
    slow(
      `TMO-${timeout}`,
      {
        title: `timeout ${timeout}: the timer fires between ${(timeoutOf(timeout) / 1000).toFixed(1)} s and four times as much`,
        section: '9.7.6.1.3',
        text: 'Long ways have such timers, and a counter of too few bits makes them short.',
      },
      async (t) => {
        const s = await t.req({ timeout, retryCnt: 3 });
        // Measured from the order to send: a first packet that is noted late would shorten the interval.
        const start = t.line.now();
        await s.post('send', { id: 1, length: 64 });
        const first = await s.next();
        const again = await s.next(4 * timeoutOf(timeout) + t.waits.slack + t.waits.patience);
        t.want(again !== undefined, 'no repetition');
        if (first === undefined || again === undefined) return;
        const interval = again.time - start;
        t.note(`repeated after ${interval.toFixed(0)} ms; T is ${timeoutOf(timeout).toFixed(0)} ms`);
        // Timers that count in ticks are looked at by TMO-01.
        t.want(interval >= TICKS * timeoutOf(timeout), 'repeated before T');
        t.want(interval <= 4 * timeoutOf(timeout) + t.waits.slack, 'repeated after 4 T only');
      },
    ),
  ),
  slow(
    'TMO-21',
    {
      title: 'a silent peer: the request fails after 1 + retry_cnt times T to 4 T',
      section: '9.7.6.1.3, 9.9.2.1',
      text: 'The program computed from the two how long it waits for a peer that restarts.',
    },
    async (t) => {
      const [timeout, retryCnt] = [16, 5];
      const s = await t.req({ timeout, retryCnt });
      const start = t.line.now();
      const least = (1 + retryCnt) * timeoutOf(timeout);
      await s.post('send', { id: 1, length: 64 });
      await s.completed(['1:RETRY_EXC_ERR'], 'nobody answered', 4 * least + t.waits.slack);
      const took = t.line.now() - start;
      t.note(`failed after ${took.toFixed(0)} ms; 1 + retry_cnt times T are ${least.toFixed(0)} ms`);
      // Measured around all of it: a late look can only lengthen it. Timers that count in ticks are looked at by TMO-01.
      t.want(took >= TICKS * least, 'failed earlier');
    },
  ),
];
