/** The connection manager of a device whose client connects to the tester (IBTA vol 1 §12.9.8). */
import type { Case } from '../case.ts';
import type { CalledSession } from '../cm-called.ts';
import { type RuleSpec, rule } from '../rule.ts';

/** ms of 4.096 µs · 2^code. */
const timeOf = (code: number): number => 4.096e-3 * 2 ** code;
/** ms that all repetitions of a REQ may take, so that they are counted. */
const COUNTED = 10_000;
/** ms between two REQs that are waited for: Linux has 4.3 s. */
const LONGEST = 20_000;

/** The part of a time that is looked at: the first REQ may be noted late. */
const LEAST = 0.8;

/** A client repeats its REQ after seconds. */
const calledRule = (
  id: string,
  spec: Omit<RuleSpec, 'needs' | 'slow'>,
  play: (c: CalledSession, t: Case) => Promise<void>,
) => rule(id, { ...spec, needs: ['caller'], slow: true }, async (t) => play(await t.called(), t));

export const callerRules = [
  calledRule(
    'CM-28',
    {
      title: 'a repeated REP is answered with RTU again',
      section: '12.9.8.1, 12.9.6',
      text: 'An RTU gets lost like any packet. A server that gets none ends the connection, which the client takes for open.',
    },
    async (c, t) => {
      for (const what of ['REP', 'the repeated REP']) {
        c.rep();
        if (!t.want((await c.next('RTU')) !== undefined, `${what}: no RTU`)) return;
      }
    },
  ),
  calledRule(
    'CM-29',
    {
      title: 'REQ is repeated as it was, not before its remote CM response timeout, and not without end',
      section: '12.9.8.2, 12.7.28',
      text: 'Copies that come early load a server that is busy; one with other numbers opens a second connection.',
    },
    async (c, t) => {
      const leastOf = () => timeOf(c.req?.remoteCmResponseTimeout ?? 0);
      const repetition = () => {
        if (leastOf() > LONGEST) t.skip(`the client repeats its REQ after more than ${LONGEST / 1000} s`);
        return c.repetition(4 * leastOf() + t.waits.patience);
      };
      let again = await repetition();
      if (again === undefined) {
        // The client had asked before anybody listened: its last REQ is not repeated.
        if (!(await c.isCalledAnew()))
          t.skip('the client asked once, perhaps for the last time, and not anew');
        again = await repetition();
      }
      const { req } = c;
      if (!t.want(again !== undefined, 'REQ is not repeated') || again === undefined || req === undefined)
        return;
      const least = leastOf();
      const waited = again.time - req.time;
      t.note(`repeated after ${waited.toFixed(0)} ms, to be answered within ${least.toFixed(0)} ms`);
      t.want(waited >= LEAST * least, 'REQ is repeated too early');
      const isSame = (
        ['localQpn', 'startingPsn', 'serviceId', 'localCaGuid', 'transactionId'] as const
      ).every((field) => again[field] === req[field]);
      t.want(isSame, 'the repeated REQ has other numbers');
      const all = (1 + req.maxCmRetries) * waited;
      t.note(`maximum of CM retries ${req.maxCmRetries}${all > COUNTED ? ': not counted' : ''}`);
      if (all > COUNTED) return;
      await t.pass(all + 2 * waited);
      t.want(c.asked - 1 <= req.maxCmRetries, 'REQ is repeated more often than it says');
    },
  ),
];
