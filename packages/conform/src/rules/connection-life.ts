/** Ends of connections, and attributes that REQ gives them (IBTA vol 1 §12.6.5, §12.9), against a service as that of rping. */
import type { Case } from '../case.ts';
import type { CmSession } from '../cm-session.ts';
import { bytes } from '../device-side.ts';
import type { Entry } from '../line.ts';
import { NAK_CODES } from '../names.ts';
import { type RuleSpec, rule } from '../rule.ts';
import { isRead, isSend, itsRead, LENGTHS } from './service.ts';

/** Connections that are opened one after the other. */
const CONNECTIONS = 3;
/** An RNR NAK with timer code 20. */
const RNR_NAK_10_MS = 0x20 | 20;
/** ms of 4.096 µs · 2^code. */
const timeOf = (code: number): number => 4.096e-3 * 2 ** code;

const cmRule = (id: string, spec: Omit<RuleSpec, 'needs'>, play: (c: CmSession, t: Case) => Promise<void>) =>
  rule(id, { ...spec, needs: ['listener'] }, async (t) => play(await t.cm(), t));

/** How often a request comes again in `ms`. */
async function repetitions(
  c: CmSession,
  t: Case,
  fits: (entry: Entry) => boolean,
  ms: number,
): Promise<number> {
  await t.pass(ms);
  let count = 0;
  while ((await c.packet(fits, 0)) !== undefined) count++;
  return count;
}

export const connectionLifeRules = [
  cmRule(
    'CM-31',
    {
      title: 'a DREQ that crosses one of the device is answered with DREP',
      section: '12.9.6, 12.9.8.3.3',
      text: 'Both sides of a failed connection end it. Each waits for its DREP, and repeats its DREQ until then.',
    },
    async (c, t) => {
      const read = await itsRead(c, t, LENGTHS.usual);
      if (read === undefined) return;
      // The service ends a connection that fails.
      c.answer('RC_ACKNOWLEDGE', 0, { extensions: { aeth: { syndrome: NAK_CODES.access, msn: 0 } } });
      if ((await c.next('DREQ')) === undefined) t.skip('the service does not end a connection that fails');
      c.dreq();
      c.released();
      t.want((await c.next('DREP')) !== undefined, 'DREQ: no DREP');
    },
  ),
  cmRule(
    'CM-33',
    {
      title: 'the queue pair number of a connection that ended is not given to the next one at once',
      section: '12.9.8.3.4, 12.4',
      text: 'Packets of the old connection may still be on their way, and would reach the new one.',
    },
    async (c, t) => {
      const ended = new Set<number>();
      let next = c;
      for (let i = 0; i < CONNECTIONS; i++) {
        const rep = await next.established({ primaryAckTimeout: 18 });
        if (rep === undefined) return;
        t.want(!ended.has(rep.localQpn), 'REP names the queue pair of a connection that just ended');
        ended.add(rep.localQpn);
        next.dreq();
        if (t.want((await next.next('DREP')) !== undefined, 'DREQ: no DREP')) next.released();
        next = await t.cm();
      }
    },
  ),
  cmRule(
    'CM-36',
    {
      title: 'retry count and RNR retry count of REQ take effect',
      section: '12.6.5, 9.9.2.4.1',
      text: 'The client decides how long the server tries. A server that goes by numbers of its own gives up too early, or never.',
    },
    async (c, t) => {
      const read = await itsRead(c, t, LENGTHS.usual, { retryCount: 1, primaryAckTimeout: 14 });
      if (read === undefined) return;
      // Linux doubles the time, and adds its own part.
      const again = await repetitions(c, t, isRead, 16 * timeOf(14));
      t.want(again > 0, 'a READ is not retransmitted with retry count 1');
      t.want(again <= 1, 'a READ is retransmitted more than once with retry count 1');
      const other = await t.cm();
      if ((await itsRead(other, t, LENGTHS.usual, { rnrRetryCount: 1 })) === undefined) return;
      other.answer('RC_RDMA_READ_RESPONSE_ONLY', 0, { payload: bytes(LENGTHS.usual) });
      for (const what of ['no SEND after the READ', 'a SEND is not retransmitted with RNR retry count 1']) {
        if (!t.want((await other.packet(isSend)) !== undefined, what)) return;
        other.answer('RC_ACKNOWLEDGE', 1, { extensions: { aeth: { syndrome: RNR_NAK_10_MS, msn: 1 } } });
      }
      t.want(
        (await repetitions(other, t, isSend, t.waits.quiet)) === 0,
        'a SEND is retransmitted more than once with RNR retry count 1',
      );
    },
  ),
];
