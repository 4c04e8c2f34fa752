/** The connection manager (IBTA vol 1 ch. 12, annex A11), against any service that accepts connections. */
import { type CmFields, ipCmServiceId, PortSpace } from '@node-roce/wire';
import type { Case } from '../case.ts';
import type { CmSession, Heard } from '../cm-session.ts';
import { bytes } from '../device-side.ts';
import { type RuleSpec, rule } from '../rule.ts';
import { BUFFER, isRead, isSend, itsRead, LENGTHS, MTU } from './service.ts';

type Spec = Omit<RuleSpec, 'needs'>;

/** A rule that plays on one connection. */
const cmRule = (id: string, spec: Spec, play: (c: CmSession, t: Case) => Promise<void>) =>
  rule(id, { ...spec, needs: ['listener'] }, async (t) => play(await t.cm(), t));

/** A REQ that has to be refused. */
const refusedRule = (
  id: string,
  spec: Spec,
  what: string,
  changes: Partial<CmFields<'REQ'>>,
  reasons: readonly number[],
) =>
  cmRule(id, spec, async (c) => {
    c.req(changes);
    await c.refused(reasons, what);
  });

/** ms of 4.096 µs · 2^code. */
const timeOf = (code: number): number => 4.096e-3 * 2 ** code;

/** REPs among messages. One may be on its way when what forbids it leaves the tester. */
const repeats = (messages: readonly Heard[]): number => messages.filter(({ name }) => name === 'REP').length;

/** A port of TCP's space that nothing listens at: discard. */
const NOBODY = ipCmServiceId(PortSpace.TCP, 9);

/** The responses of a READ of 4096 bytes, but those at `lost`. */
function respond(c: CmSession, lost: readonly number[] = []): void {
  const data = bytes(LENGTHS.long);
  for (const [i, place] of (['FIRST', 'MIDDLE', 'MIDDLE', 'LAST'] as const).entries()) {
    if (lost.includes(i)) continue;
    c.answer(`RC_RDMA_READ_RESPONSE_${place}`, i, { payload: data.slice(i * MTU, (i + 1) * MTU) });
  }
}

/** Makes the service READ four packets once, to see whether its buffer has that many bytes. */
async function readsLong(c: CmSession, t: Case): Promise<void> {
  if ((await itsRead(c, t, LENGTHS.long)) === undefined) return;
  respond(c);
  if ((await c.packet(isSend)) === undefined) t.skip('the service has no 4096 bytes: rping -s -P -S 4096');
}

export const connectionManagerRules = [
  cmRule(
    'CM-01',
    {
      title: 'REQ is answered with REP: ids, QPN, depth, transaction; DREQ with DREP',
      section: '12.6.8, 12.9.6',
      first: true,
      text: 'Without it there is no connection at all, and none that ends.',
    },
    async (c, t) => {
      const rep = await c.established();
      if (rep === undefined) return;
      t.want(rep.localCommId !== 0, 'REP without a communication id');
      t.want(rep.localQpn > 1, 'REP without a queue pair');
      t.want(rep.localCaGuid !== 0n, 'REP without a CA GUID');
      t.want(rep.transactionId === c.transactionId, 'REP has another transaction ID than REQ');
      t.want(rep.initiatorDepth <= 4, 'REP: more READs outstanding than REQ has resources for');
      c.dreq();
      const drep = await c.next('DREP');
      if (t.want(drep !== undefined, 'DREQ: no DREP')) c.released();
      t.want(drep?.localCommId === rep.localCommId, 'DREP has another communication id than REP');
    },
  ),
  refusedRule(
    'CM-02',
    {
      title: 'nobody listens: REJ invalid service ID',
      section: '12.6.7.2',
      first: true,
      text: 'A client learns at once that it has the wrong port, and does not wait a minute.',
    },
    'a service of nobody',
    { serviceId: NOBODY },
    [8],
  ),
  cmRule(
    'CM-03',
    {
      title: 'a repeated REQ makes no second connection',
      section: '12.9.8.3.1',
      first: true,
      text: 'A REQ is repeated when its answer is late. A second queue pair for it is lost memory, and its REP ends the first.',
    },
    async (c, t) => {
      for (let i = 0; i < 3; i++) c.req();
      if ((await c.accepted()) === undefined) return;
      const more = await c.all();
      const others = more.filter((message) => message.name === 'REP' && message.localQpn !== c.rep?.localQpn);
      t.want(others.length === 0, 'REPs name different queue pairs');
      await c.rtu();
    },
  ),
  cmRule(
    'CM-04',
    {
      title: "REP is repeated until RTU, not before REQ's local CM response timeout, with one QPN",
      section: '12.9.8.3.2, 12.7.22',
      text: 'An RTU gets lost like any packet. Copies that come too early load a client that is busy.',
    },
    async (c, t) => {
      const asked = c.req({ localCmResponseTimeout: 15 });
      const rep = await c.accepted();
      if (rep === undefined) return;
      const again = await c.next('REP', 4 * t.waits.patience);
      if (t.want(again !== undefined, 'REP is not repeated') && again !== undefined) {
        // From a packet of the tester on: arrivals are only ever late. Linux takes 1 ms for 1.05, and counts in ticks.
        const waited = again.time - asked.time;
        t.note(`repeated ${waited.toFixed(0)} ms after REQ, asked for ${timeOf(15).toFixed(0)}`);
        t.want(waited >= 0.85 * timeOf(15), 'REP is repeated too early');
        t.want(again.localQpn === rep.localQpn, 'the repeated REP has another queue pair');
      }
      await c.rtu();
    },
  ),
  cmRule(
    'CM-05',
    {
      title: 'an MRA of the REP stretches its timer',
      section: '12.6.6, 12.9.8.2',
      text: 'A client that is slow to set its queue pair up asks for time. A server that gives up all the same makes connections fail under load.',
    },
    async (c, t) => {
      c.req({ localCmResponseTimeout: 15 });
      if ((await c.accepted()) === undefined) return;
      c.toPeer({ name: 'MRA', messageMraed: 1, serviceTimeout: 18 });
      const after = await c.all(5 * timeOf(15));
      t.want(repeats(after) <= 1, 'REP is repeated within the time that the MRA asked for');
      t.want(!after.some(({ name }) => name === 'REJ'), 'REJ within the time that the MRA asked for');
      await c.rtu();
    },
  ),
  cmRule(
    'CM-06',
    {
      title: 'DREQ of unknown ids is answered with DREP',
      section: '12.9.8.3.3',
      text: 'The side that remembers the connection is done at once, and does not repeat DREQ until it gives up.',
    },
    async (c, t) => {
      c.dreq({ remoteCommId: 0x7777, remoteQpn: 0x77 });
      t.want((await c.next('DREP')) !== undefined, 'no DREP');
    },
  ),
  cmRule(
    'CM-07',
    {
      title: 'DREQ with another QPN is ignored',
      section: '12.6.10',
      text: 'Such a DREQ is of another connection, or forged. It must not end this one.',
    },
    async (c, t) => {
      const rep = await c.established();
      if (rep === undefined) return;
      c.dreq({ remoteQpn: rep.localQpn ^ 1 });
      const answers = await c.all();
      t.want(!answers.some(({ name }) => name === 'DREP'), 'DREP to a DREQ for another queue pair');
    },
  ),
  cmRule(
    'CM-08',
    {
      title: 'REQ for a QPN and CA GUID that are connected: REJ stale connection',
      section: '12.9.8.3.1, 12.4.1',
      text: 'The client has started anew, and has its old queue pair number again: packets of the old connection would reach the new one.',
    },
    async (c, t) => {
      if ((await c.established()) === undefined) return;
      const { guid, qpn } = c.numbers;
      const again = await t.cm({ guid, qpn });
      again.req();
      await again.refused([10], 'a queue pair that is connected');
    },
  ),
  refusedRule(
    'CM-09',
    {
      title: 'a service of reliable connections, asked for as UC: REJ',
      section: '12.6.7.2',
      should: true,
      text: 'A client that gets a queue pair of another service than it asked for loses data silently.',
    },
    'UC',
    { transportService: 1 },
    [8, 9, 28],
  ),
  cmRule(
    'CM-13',
    {
      title: 'MADs with another class version, Q_Key, class or length are dropped',
      section: '13.4, 12.6',
      hostile: true,
      text: 'Whatever reaches queue pair 1 is of strangers.',
    },
    async (c, t) => {
      const spoilt: Readonly<Record<string, Parameters<CmSession['req']>[1]>> = {
        'class version 1': { spoil: (bytes) => bytes.set([1], 2) },
        'Q_Key 0x1234': { qkey: 0x1234 },
        'class 0x55': { spoil: (bytes) => bytes.set([0x55], 1) },
        '128 bytes': { length: 128 },
      };
      for (const [what, options] of Object.entries(spoilt)) {
        c.req({}, options);
        const answers = await c.all();
        t.want(!answers.some(({ name }) => name === 'REP' || name === 'REJ'), `${what}: answered`);
      }
    },
  ),
  cmRule(
    'CM-14',
    {
      title: 'private data of IP CM: a version other than 0 is not accepted',
      section: 'A11',
      text: 'The addresses in it cannot be trusted to stand where version 0 has them.',
    },
    async (c) => {
      c.req({ ipCmVersion: 3 });
      await c.notAccepted('version 3 of the private data');
    },
  ),
  cmRule(
    'CM-15',
    {
      title: 'a P_Key that the port has not is not accepted',
      section: '12.6.7.2, 10.9.3',
      text: 'A connection across partitions would exchange no packet.',
    },
    async (c) => {
      c.req({ pkey: 0x1234 });
      await c.notAccepted('P_Key 0x1234');
    },
  ),
  refusedRule(
    'CM-16',
    {
      title: "a GID that is not the port's: REJ",
      section: '12.6.7.2',
      text: 'Packets of the connection would leave from an address that the client does not expect, and would be dropped there.',
    },
    'a GID of nobody',
    { primaryRemoteGid: Uint8Array.from([...new Uint8Array(10), 0xff, 0xff, 192, 0, 2, 222]) },
    [12, 28],
  ),
  cmRule(
    'CM-17',
    {
      title: 'after a REJ of the REP nothing is left of the connection',
      section: '12.9.8.3.2',
      text: 'A client that cannot use the connection refuses it; a server that repeats REP all the same holds a queue pair for nobody.',
    },
    async (c, t) => {
      c.req();
      if ((await c.accepted()) === undefined) return;
      c.refuse();
      c.released();
      const after = await c.all(3 * timeOf(14));
      t.want(repeats(after) <= 1, 'REP is repeated after the REJ');
    },
  ),
  cmRule(
    'CM-18',
    {
      title: 'a repeated DREQ is answered again',
      section: '12.9.8.3.3',
      text: 'A DREP gets lost like any packet.',
    },
    async (c, t) => {
      if ((await c.established()) === undefined) return;
      for (const what of ['DREQ', 'the repeated DREQ']) {
        c.dreq();
        t.want((await c.next('DREP')) !== undefined, `${what}: no DREP`);
      }
      c.released();
    },
  ),
  rule(
    'CM-19',
    {
      title: 'queue pairs of the connection have the PSNs of REQ and REP, also across the wrap',
      section: '12.6.5, 9.7.2',
      needs: ['listener'],
      text: 'Each side names the PSN that it expects. A peer that begins with another one never gets a message through.',
    },
    async (t) => {
      const c = await t.cm({ psn: 0xff_ffff });
      const read = await itsRead(c, t, LENGTHS.usual);
      if (read === undefined) return;
      t.want(c.requestAt(read) === 0, 'its first request has another PSN than REQ gave it');
      c.answer('RC_RDMA_READ_RESPONSE_ONLY', 0, { payload: bytes(LENGTHS.usual) });
      const send = await c.packet(isSend);
      if (!t.want(send !== undefined, 'nothing after the READ') || send === undefined) return;
      t.want(c.requestAt(send) === 1, 'the request after a READ of one packet has another PSN than the next');
    },
  ),
  cmRule(
    'CM-20',
    {
      title: 'a READ is asked for again at the response that is missing',
      section: '9.7.5.1.4',
      text: 'Without an agent: rping READs from its client, so its recovery can be seen.',
    },
    async (c, t) => {
      await readsLong(await t.cm(), t);
      if ((await itsRead(c, t, LENGTHS.long)) === undefined) return;
      respond(c, [1]);
      const again = await c.packet(isRead, 4 * t.waits.patience);
      if (!t.want(again !== undefined, 'the READ is not asked for again') || again === undefined) return;
      t.want(c.requestAt(again) === 1, 'asks again with another PSN than the missing one');
      const va = again.packet?.extensions.reth?.va;
      t.want(va === BUFFER.va + BigInt(MTU), 'asks again at another address than the missing one');
    },
  ),
  cmRule(
    'CM-23',
    {
      title: 'a SIDR_REQ for a service of nobody: SIDR_REP service not supported',
      section: '12.11.2',
      text: 'A program that looks for a datagram service learns at once that there is none.',
    },
    async (c, t) => {
      c.mad({ name: 'SIDR_REQ', requestId: c.numbers.id, pkey: 0xffff, serviceId: NOBODY });
      const answer = await c.next('SIDR_REP');
      t.want(answer !== undefined, 'SIDR_REQ: silence');
      if (answer !== undefined) t.want(answer.status === 1, 'SIDR_REP with another status than 1');
    },
  ),
  cmRule(
    'CM-24',
    {
      title: 'a client that gives up names the connection by its CA GUID: nothing is left of it',
      section: '12.6.7.2, 12.9.8.3',
      text: 'A client whose REQ was not answered in time does not know the id of the server. Without this the server repeats REP for nobody.',
    },
    async (c, t) => {
      c.req();
      if ((await c.accepted()) === undefined) return;
      c.giveUp();
      c.released();
      const after = await c.all(3 * timeOf(14));
      t.want(repeats(after) <= 1, 'REP is repeated after the REJ for a timeout');
    },
  ),
];
