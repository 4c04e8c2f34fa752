/** Ends of connections, and attributes that REQ gives them (IBTA vol 1 §12.6.5, §12.9), against a service as that of rping. */
import type { CmInput } from '@node-roce/wire';
import type { Case } from '../case.ts';
import type { CmSession, Heard } from '../cm-session.ts';
import { bytes } from '../device-side.ts';
import type { Entry } from '../line.ts';
import { NAK_CODES } from '../names.ts';
import { type RuleSpec, rule } from '../rule.ts';
import { drawFrom } from './draw.ts';
import { isRead, isSend, isTaken, itsRead, LENGTHS } from './service.ts';

/** Connections that are opened one after the other. */
const CONNECTIONS = 3;
/** REQs of CM-34: fewer than the packets that Linux takes from a network card at a time, or it may log that. */
const CALLS = 50;
/** Messages of FUZ-02; the bytes of a MAD in front of CM's own. */
const FUZZED_MESSAGES = 300;
const MAD_HEADER = 24;
/** In REQ, the number of the service ends here. */
const BEHIND_SERVICE = MAD_HEADER + 16;
/** A service of the vendor's own numbers. */
const NOBODY = 0x7fff_0000_0000n;
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

/** A message with some bytes changed. A REQ is for a service of nobody: nothing may be left behind. */
function mutated(c: CmSession, draw: (n: number) => number): void {
  const from = (first: number) => ({
    spoil: (mad: Uint8Array) => {
      for (let k = draw(6); k >= 0; k--) mad[first + draw(mad.length - first)] = draw(256);
    },
  });
  const ids = { localCommId: draw(8), remoteCommId: draw(8) };
  const remoteQpn = draw(1 << 24);
  const messages: readonly CmInput[] = [
    { name: 'REP', ...ids, localQpn: remoteQpn },
    { name: 'DREQ', ...ids, remoteQpn },
    { name: 'REJ', ...ids, messageRejected: draw(4), reason: draw(40) },
    { name: 'LAP', ...ids, remoteQpn },
    { name: 'MRA', ...ids, messageMraed: draw(4), serviceTimeout: draw(32) },
  ];
  const kind = draw(messages.length + 1);
  if (kind === messages.length) c.req({ serviceId: NOBODY }, from(BEHIND_SERVICE));
  else c.mad(messages[kind], from(MAD_HEADER));
}

/** A new connection has to be there, and to take a SEND. */
async function opens(t: Case, when: string): Promise<void> {
  const c = await t.cm();
  if ((await c.established()) === undefined) return;
  c.send('RC_SEND_ONLY', 0, { payload: new Uint8Array(16) });
  const taken = await c.packet((entry) => isTaken(entry) && c.at(entry) === 0);
  t.want(taken !== undefined, `${when}: a new connection takes no SEND`);
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
    'CM-30',
    {
      title: "DREQ is repeated until DREP, not before REQ's local CM response timeout, and not without end",
      section: '12.9.8.3.3, 12.7.22, 12.7.27',
      text: 'DREQ and DREP get lost. Copies that come early load a peer that is busy; those without end one that is gone.',
    },
    async (c, t) => {
      const maxCmRetries = 2;
      const read = await itsRead(c, t, LENGTHS.usual, { localCmResponseTimeout: 15, maxCmRetries });
      if (read === undefined) return;
      // Measured from the NAK: a first DREQ that is noted late would shorten the interval.
      const start = t.line.now();
      c.answer('RC_ACKNOWLEDGE', 0, { extensions: { aeth: { syndrome: NAK_CODES.access, msn: 0 } } });
      if ((await c.next('DREQ')) === undefined) t.skip('the service does not end a connection that fails');
      const again = (await c.all(8 * timeOf(15))).filter(({ name }) => name === 'DREQ');
      c.toPeer({ name: 'DREP' });
      c.released();
      if (!t.want(again.length > 0, 'DREQ is not repeated')) return;
      const waited = again[0].time - start;
      t.note(
        `repeated after ${waited.toFixed(0)} ms, asked for ${timeOf(15).toFixed(0)}; ${again.length} times`,
      );
      t.want(waited >= 0.8 * timeOf(15), 'DREQ is repeated too early');
      t.want(again.length <= maxCmRetries, 'DREQ is repeated more often than REQ allows');
    },
  ),
  cmRule(
    'CM-32',
    {
      title: 'data in front of RTU is taken',
      section: '12.9.6, 12.9.8.1',
      should: true,
      text: 'An RTU gets lost like any packet; the client has a REP and may send.',
    },
    async (c, t) => {
      c.req();
      if ((await c.accepted()) === undefined) return;
      c.send('RC_SEND_ONLY', 0, { payload: new Uint8Array(16) });
      const taken = await c.packet((entry) => isTaken(entry) && c.at(entry) === 0);
      t.want(taken !== undefined, 'a SEND in front of RTU is not taken');
      await c.rtu();
    },
  ),
  cmRule(
    'CM-26',
    {
      title: 'a REQ that names queue pair 0 or 1, or no CA, stops nothing',
      section: '12.6.5',
      hostile: true,
      text: 'Any host that can reach the port can send it.',
    },
    async (_, t) => {
      for (const numbers of [{ qpn: 0 }, { qpn: 1 }, { guid: 0n }]) {
        const c = await t.cm(numbers);
        c.req();
        const answer = await c.next();
        t.note(`${Object.keys(numbers)}: ${answer === undefined ? 'silence' : c.list([answer])}`);
        // A connection that there is ends with the case.
        if (answer?.name === 'REP') c.rep = answer;
        await c.close();
      }
      await opens(t, 'afterwards');
    },
  ),
  cmRule(
    'FUZ-02',
    {
      title: '300 messages that are partly right: the connection manager still answers',
      section: '12.6, 13.4',
      hostile: true,
      text: 'Any host that can reach the port can send them.',
    },
    async (c, t) => {
      const draw = drawFrom(2);
      for (let i = 0; i < FUZZED_MESSAGES; i++) {
        mutated(c, draw);
        if (i % 16 === 15) await t.pass(2);
      }
      await t.pass(t.waits.quiet);
      await opens(t, 'afterwards');
    },
  ),
  cmRule(
    'CM-34',
    {
      title:
        '50 REQs at once: each is answered, refused or dropped, none is taken twice, and the next one is answered',
      section: '12.9.8, 12.9.6',
      should: true,
      hostile: true,
      text: 'Clients of a whole cluster come back at once when a server was started anew.',
    },
    async (_, t) => {
      const calls: CmSession[] = [];
      for (let i = 0; i < CALLS; i++) {
        const c = await t.cm();
        calls.push(c);
        c.req();
      }
      const taken = new Map<number, CmSession>();
      const refused = new Set<CmSession>();
      const hear = (c: CmSession, heard: Heard) => {
        if (heard.name === 'REJ' && c.rep === undefined) refused.add(c);
        if (heard.name !== 'REP') return;
        t.want((c.rep ?? heard).localQpn === heard.localQpn, 'REPs to one REQ name different queue pairs');
        t.want((taken.get(heard.localQpn) ?? c) === c, 'two REQs get the same queue pair');
        taken.set(heard.localQpn, c);
        c.rep ??= heard;
        // Nothing is left of it.
        c.refuse();
        c.released();
      };
      for (let before = -1; before < taken.size; ) {
        before = taken.size;
        await t.pass(t.waits.patience);
        for (const c of calls) for (const heard of await c.all(0)) hear(c, heard);
      }
      t.note(`${taken.size} of ${CALLS} accepted, ${refused.size} refused`);
      const next = await t.cm();
      t.want(await next.listening(true), 'afterwards: a REQ is not answered');
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
      // A long ACK timer: while the tester is late, it would repeat the SEND, too.
      const counts = { rnrRetryCount: 1, primaryAckTimeout: 20 };
      if ((await itsRead(other, t, LENGTHS.usual, counts)) === undefined) return;
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
