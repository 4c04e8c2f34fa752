/** ACKs, MSNs and credits of the responder, and how the requester takes ACKs (IBTA vol 1 §9.7.5.1, §9.7.7). */
import { aethValue, CREDIT_UNLIMITED, creditsOf } from '@node-roce/wire';
import { bytes } from '../device-side.ts';
import type { Entry } from '../line.ts';
import { rule } from '../rule.ts';

const msnOf = (entry: Entry | undefined): number | undefined => entry?.packet?.extensions.aeth?.msn;

export const ackRules = [
  rule(
    'MSN-01',
    {
      title: 'the MSN grows by one for each message, not for each packet',
      section: '9.7.7.1',
      needs: ['rc', 'write', 'read', 'receives'],
      text: 'The requester adds credits to it: a wrong MSN stops or floods the connection.',
      first: true,
    },
    async (t) => {
      const s = await t.rc({ receives: 2 });
      const wanted = async (msn: number, what: string) => {
        const got = msnOf(await s.next());
        t.want(got === msn, `${what}: MSN ${got}, wanted ${msn}`);
      };
      s.write(0);
      await wanted(1, 'a WRITE');
      s.writeFirst(1, bytes(1024), 3072);
      s.follow('RC_RDMA_WRITE_MIDDLE', 2, bytes(1024));
      await wanted(1, 'in mid-message');
      s.follow('RC_RDMA_WRITE_LAST', 3, bytes(1024));
      await wanted(2, 'a WRITE of three packets');
      s.sendOnly(4);
      await wanted(3, 'a SEND');
      s.read(5, 16);
      await wanted(4, 'a READ');
      s.write(7);
      await wanted(4, 'a NAK');
    },
  ),
  rule(
    'ACK-01',
    {
      title: 'a packet in mid-message with AckReq is acknowledged',
      section: '9.7.5.1.1',
      needs: ['rc', 'write'],
      text: 'A requester with a small window asks in the midst of a long message, and waits.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      s.writeFirst(0, bytes(1024), 1100, 0, { ackReq: true });
      await s.ack(0, 'FIRST with AckReq');
      s.follow('RC_RDMA_WRITE_LAST', 1, bytes(76));
      await s.ack(1, 'LAST');
    },
  ),
  rule(
    'ACK-02',
    {
      title: 'the ACKs of a burst never go back, and end with the last PSN',
      section: '9.7.5.1.2',
      needs: ['rc', 'write'],
      text: 'They may be coalesced. The last one has to come, or the requester waits for its timer.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      for (let n = 0; n < 32; n++) s.write(n, bytes(256, n), 256 * n);
      const answers = await s.allUntil((entry) => s.at(entry) === 31);
      const psns = answers.map((entry) => s.at(entry) ?? -1);
      t.want(
        psns.every((psn, i) => i === 0 || psn > psns[i - 1]),
        'the PSNs of the ACKs go back',
      );
      t.want(
        psns.at(-1) === 31,
        `the last ACK: wanted psn+31, got ${psns.length === 0 ? 'silence' : `psn+${psns.at(-1)}`}`,
      );
      if (psns.length < 32) t.note(`${psns.length} ACKs for 32 requests`);
    },
  ),
  rule(
    'ACK-03',
    {
      title: 'no ACK overtakes READ responses',
      section: '9.7.3.1, 9.4.4',
      needs: ['rc', 'write', 'read'],
      text: 'To the requester an ACK past a READ shows that its responses were lost.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      s.read(0, 16 * 1024);
      s.write(16, bytes(8), 32_768);
      const psns = (await s.collect(17)).map((entry) => s.at(entry));
      t.want(
        psns.length === 17 && psns.every((psn, i) => psn === i),
        `PSNs in the order ${psns.join(', ') || 'of no packet'}`,
      );
    },
  ),
  rule(
    'ACK-05',
    {
      title: 'credits in ACKs: without limit, or no more than the receives that are there',
      section: '9.7.7.2',
      should: true,
      needs: ['rc', 'receives'],
      text: 'A requester that goes by credits sends so many SENDs at once; each one too many costs an RNR NAK, and a wait.',
    },
    async (t) => {
      const receives = 4;
      const s = await t.rc({ receives });
      let isCovered = true;
      const codes: number[] = [];
      for (let n = 0; n < receives; n++) {
        s.sendOnly(n);
        const ack = await s.ack(n);
        const code = aethValue(ack?.packet?.extensions.aeth?.syndrome ?? 0);
        codes.push(code);
        isCovered &&= code === CREDIT_UNLIMITED || creditsOf(code) <= receives - 1 - n;
      }
      t.note(`credit codes ${codes.join(', ')}`);
      t.want(isCovered, 'credits for receives that are not there');
    },
  ),
  rule(
    'ACK-11',
    {
      title: 'an ACK acknowledges everything before it',
      section: '9.7.5.1.2',
      needs: ['rc', 'post', 'completions'],
      text: 'Responders coalesce ACKs.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 1, length: 32, count: 5 });
      await s.requests(5);
      s.acknowledge(3);
      await s.completed(['1:SUCCESS', '2:SUCCESS', '3:SUCCESS', '4:SUCCESS'], 'ACK psn+3');
      s.acknowledge(4);
      await s.completed(['5:SUCCESS'], 'ACK psn+4');
    },
  ),
  rule(
    'ACK-12',
    {
      title: 'an ACK for a PSN that was not sent yet is ignored',
      section: '9.7.5.1.2, 9.9.2.2',
      needs: ['rc', 'post', 'completions'],
      text: 'A late copy of an earlier connection, or a forgery, must not report lost data as sent.',
      first: true,
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 1, length: 32, count: 2 });
      await s.requests(2);
      s.acknowledge(2);
      s.acknowledge(100);
      // A request completes once.
      if (!(await s.noCompletion('ACK of a PSN not sent'))) return;
      s.acknowledge(1);
      await s.completed(['1:SUCCESS', '2:SUCCESS'], 'then the ACK');
    },
  ),
  rule(
    'ACK-13',
    {
      title: 'an old ACK is ignored',
      section: '9.7.5.1.2',
      needs: ['rc', 'post', 'completions'],
      text: 'Networks deliver copies late.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 1, length: 32 });
      await s.next();
      s.acknowledge(0);
      await s.completed(['1:SUCCESS'], 'the first SEND');
      await s.post('send', { id: 2, length: 32 });
      await s.next();
      s.acknowledge(0);
      s.acknowledge(-5, { msn: 0 });
      await s.noCompletion('old ACK', 120);
      s.acknowledge(1);
      await s.completed(['2:SUCCESS'], 'then the new one');
    },
  ),
  rule(
    'ACK-14',
    {
      title: 'ACKs with a bad ICRC or another P_Key are not heard',
      section: '9.6.1, A17.3.3',
      needs: ['rc', 'post', 'completions'],
      text: 'The packet may be another than it seems.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 1, length: 32 });
      await s.next();
      s.acknowledge(0, { icrc: 1 });
      await s.noCompletion('bad ICRC', 80);
      s.acknowledge(0, { bth: { pkey: 0x9999 } });
      await s.noCompletion('P_Key 0x9999', 80);
      s.acknowledge(0);
      await s.completed(['1:SUCCESS'], 'the right ACK');
    },
  ),
  rule(
    'ACK-16',
    {
      title: 'an ACK from another address, or for another queue pair, is not heard',
      section: '9.6.1, A17.4.5',
      needs: ['rc', 'post', 'completions', 'spoof'],
      text: 'Off the path an attacker has to guess the address as well.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 1, length: 32 });
      await s.next();
      s.acknowledge(0, { ip: { source: t.otherAddress() } });
      await s.noCompletion('another address', 80);
      s.acknowledge(0, { bth: { destQp: (s.qpn + 0x4000) & 0xff_ffff } });
      await s.noCompletion('another queue pair', 80);
      s.acknowledge(0);
      await s.completed(['1:SUCCESS'], 'the right ACK');
    },
  ),
  rule(
    'CRD-01',
    {
      title: 'without credits no more than one SEND is sent',
      section: '9.7.7.2',
      needs: ['rc', 'post', 'completions'],
      text: 'The receiver has no buffers: every further SEND ends in an RNR NAK.',
    },
    async (t) => {
      const s = await t.rc({ timeout: 20 });
      await s.post('send', { id: 1, length: 32 });
      await s.next();
      s.acknowledge(0, { syndrome: 0, msn: 1 });
      await s.completed(['1:SUCCESS'], 'the first SEND');
      await s.post('send', { id: 2, length: 32, count: 8 });
      const sent = s.fresh(await s.all()).filter((entry) => (s.requestAt(entry) ?? 0) > 0);
      t.want(sent.length <= 1, `${sent.length} SENDs with 0 credits`);
      s.acknowledge(1, { syndrome: 2, msn: 2 });
      const more = s.fresh(await s.all()).filter((entry) => (s.requestAt(entry) ?? 0) > 1);
      t.note(`${sent.length} SENDs with 0 credits, ${more.length} with 2 more`);
    },
  ),
  rule(
    'CRD-02',
    {
      title: 'zero credits do not hold up WRITEs',
      section: '9.7.7.2',
      needs: ['rc', 'post', 'completions'],
      text: 'They take no receive.',
    },
    async (t) => {
      const s = await t.rc({ timeout: 20 });
      await s.post('send', { id: 1, length: 32 });
      await s.next();
      s.acknowledge(0, { syndrome: 0, msn: 1 });
      await s.completed(['1:SUCCESS'], 'the SEND');
      await s.post('write', { id: 2, length: 32, count: 4, remote: { va: 4096n, rkey: 1 } });
      const sent = s.fresh(await s.all()).filter((entry) => (s.requestAt(entry) ?? 0) > 0);
      t.want(sent.length === 4, `${sent.length} WRITEs of 4`);
    },
  ),
];
