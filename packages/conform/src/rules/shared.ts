/** Shared receive queues (IBTA vol 1 §10.2.9). */
import type { Case } from '../case.ts';
import { bytes } from '../device-side.ts';
import { rule } from '../rule.ts';
import type { Session } from '../session.ts';

/** Two connections with one shared receive queue. */
async function sharing(t: Case): Promise<readonly [Session, Session]> {
  const first = await t.rc({ srq: 'own' });
  return [first, await t.rc({ srq: first.connection })];
}

/** A SEND that has to take the receive with this id. */
async function takes(s: Session, n: number, id: number): Promise<void> {
  s.sendOnly(n, bytes(8, id));
  await s.ack(n, `SEND ${id}`);
  await s.completed([`${id}:SUCCESS`], `SEND ${id}`);
}

/** The names of `ibv_event_type_str`. */
const LIMIT_REACHED = 'SRQ limit reached';
const LAST_REACHED = 'last WQE reached';

export const sharedRules = [
  rule(
    'RNR-05',
    {
      title: 'an empty SRQ draws an RNR NAK; a receive posted to it serves the repetition',
      section: '10.2.9, 9.7.5.2.8',
      needs: ['rc', 'receives', 'srq', 'completions'],
      text: 'A server with a thousand connections runs out of receives for all of them at once.',
    },
    async (t) => {
      const s = await t.rc({ srq: 'own' });
      s.sendOnly(0);
      await s.nak({ rnr: s.spec.minRnrTimer }, 0, 'no receive');
      await s.receive({ id: 1, length: 64 });
      await takes(s, 0, 1);
    },
  ),
  rule(
    'SRQ-01',
    {
      title: 'a queue pair that fails leaves the receives of its SRQ to the others',
      section: '10.2.9.3',
      needs: ['rc', 'receives', 'srq', 'completions', 'fail'],
      text: 'One client that breaks off must not take the receives of all others along.',
    },
    async (t) => {
      const [first, second] = await sharing(t);
      for (const id of [1, 2]) await first.receive({ id, offset: id * 64, length: 64 });
      await first.fail();
      await first.noCompletion('one of two queue pairs failed', 60);
      await takes(second, 0, 1);
      await takes(second, 1, 2);
    },
  ),
  rule(
    'STA-08',
    {
      title: 'a queue pair with an SRQ that fails raises last WQE reached',
      section: '11.6.3.2, 10.3.1.7',
      should: true,
      needs: ['rc', 'srq', 'events', 'fail'],
      text: 'Without it, a program does not know when no receive of the SRQ is in use by the queue pair any more.',
    },
    async (t) => {
      const s = await t.rc({ srq: 'own' });
      // Those of the rules before.
      await s.events(0);
      await s.fail();
      const events = await s.events();
      t.want(events.includes(LAST_REACHED), `${events.join(', ') || 'no event'}, wanted ${LAST_REACHED}`);
    },
  ),
  rule(
    'SRQ-03',
    {
      title: 'queue pairs take the receives of their SRQ in order, each message one',
      section: '10.2.9',
      needs: ['rc', 'receives', 'srq', 'completions'],
      text: 'The order in which they were posted is what a program counts on.',
    },
    async (t) => {
      const [first, second] = await sharing(t);
      for (const id of [1, 2, 3, 4]) await first.receive({ id, offset: id * 64, length: 64 });
      await takes(first, 0, 1);
      await takes(second, 0, 2);
      await takes(second, 1, 3);
      await takes(first, 1, 4);
    },
  ),
  rule(
    'SRQ-02',
    {
      title: 'the limit of an SRQ raises one event, with the receive that leaves fewer',
      section: '10.2.9.1',
      needs: ['rc', 'receives', 'srq', 'completions', 'events'],
      text: 'A server posts receives again when the event comes: without it, it runs out; with many, it does nothing else.',
    },
    async (t) => {
      const s = await t.rc({ srq: 'own' });
      for (const id of [1, 2, 3, 4]) await s.receive({ id, offset: id * 64, length: 64 });
      await s.limitReceives(3);
      await takes(s, 0, 1);
      t.want((await s.events(60)).length === 0, 'three receives left, limit 3: an event');
      await takes(s, 1, 2);
      const events = await s.events();
      t.want(
        events.join() === LIMIT_REACHED,
        `two receives left, limit 3: ${events.join(', ') || 'no event'}, wanted ${LIMIT_REACHED}`,
      );
      await takes(s, 2, 3);
      t.want((await s.events(60)).length === 0, 'one receive left: a second event');
    },
  ),
  rule(
    'SRQ-04',
    {
      title: 'the limit of an SRQ raises an event again when it was set again',
      section: '10.2.9.1',
      needs: ['rc', 'receives', 'srq', 'completions', 'events'],
      text: 'A server sets the limit each time that it posted receives.',
    },
    async (t) => {
      const s = await t.rc({ srq: 'own' });
      for (const n of [0, 1]) {
        for (const id of [1, 2]) await s.receive({ id, offset: id * 64, length: 64 });
        await s.limitReceives(2);
        await takes(s, 2 * n, 1);
        const events = await s.events();
        const of = n === 0 ? 'the first time' : 'set again';
        t.want(
          events.join() === LIMIT_REACHED,
          `${of}: ${events.join(', ') || 'no event'}, wanted ${LIMIT_REACHED}`,
        );
        await takes(s, 2 * n + 1, 2);
      }
    },
  ),
];
