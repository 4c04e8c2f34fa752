/** Unreliable connections and datagrams (IBTA vol 1 §9.8). */
import { formatIpAddress } from '@node-roce/wire';
import { bytes, same } from '../device-side.ts';
import { rule } from '../rule.ts';

const UNANSWERED = 'The sender listens to no answer; messages get lost, and the connection goes on.';

/** Where WRITEs go in the region: behind the receives. */
const WRITTEN = 32_768;

export const unreliableRules = [
  rule(
    'UC-01',
    {
      title: 'UC: nothing is ever answered',
      section: '9.8.2',
      needs: ['uc', 'receives'],
      text: UNANSWERED,
    },
    async (t) => {
      const s = await t.uc({ receives: 2 });
      for (const n of [0, 0, 9]) s.send('UC_SEND_ONLY', n, { ackReq: true, payload: bytes(8) });
      await s.silence('UC');
    },
  ),
  rule(
    'UC-02',
    {
      title: 'UC: whole messages are received, whatever was lost between them',
      section: '9.8.2.2.1',
      needs: ['uc', 'receives', 'completions'],
      text: UNANSWERED,
    },
    async (t) => {
      const s = await t.uc({ receives: 4 });
      for (const n of [0, 5, 6]) s.send('UC_SEND_ONLY', n, { payload: bytes(8) });
      await s.completed(['1000:SUCCESS', '1001:SUCCESS', '1002:SUCCESS'], 'three messages');
    },
  ),
  rule(
    'UC-03',
    {
      title: 'UC: a message with a gap is dropped, the one after it is received',
      section: '9.8.2.2.2',
      needs: ['uc', 'receives', 'completions'],
      text: UNANSWERED,
    },
    async (t) => {
      const s = await t.uc({ receives: 3 });
      s.send('UC_SEND_FIRST', 0, { payload: bytes(1024) });
      s.send('UC_SEND_LAST', 2, { payload: bytes(8) });
      s.send('UC_SEND_ONLY', 3, { payload: bytes(16) });
      const got = await s.completions(2, 200);
      const text = got.map(({ status, length }) => `${status} ${length} B`).join(', ') || 'nothing';
      t.want(text === 'SUCCESS 16 B', `received ${text}, wanted SUCCESS 16 B`);
    },
  ),
  rule(
    'UC-04',
    {
      title: 'UC: the message that shows the gap is received',
      section: '9.8.2.2.2',
      needs: ['uc', 'receives', 'completions'],
      text: 'It is whole.',
    },
    async (t) => {
      const s = await t.uc({ receives: 3 });
      s.send('UC_SEND_FIRST', 0, { payload: bytes(1024) });
      s.send('UC_SEND_ONLY', 3, { payload: bytes(16) });
      s.send('UC_SEND_ONLY', 4, { payload: bytes(17) });
      const lengths = (await s.completions(2, 200)).map(({ length }) => length).join(', ') || 'nothing';
      t.want(lengths === '16, 17', `received ${lengths}, wanted 16, 17`);
    },
  ),
  rule(
    'UC-05',
    {
      title: 'UC: after a broken WRITE the next messages are received',
      section: '9.8.2.2.2',
      needs: ['uc', 'receives', 'completions'],
      text: UNANSWERED,
    },
    async (t) => {
      const s = await t.uc({ receives: 3 });
      s.send('UC_RDMA_WRITE_FIRST', 0, { payload: bytes(1024), reth: { length: 3072 } });
      s.send('UC_RDMA_WRITE_LAST', 2, { payload: bytes(1024) });
      for (const n of [3, 4, 5]) s.send('UC_SEND_ONLY', n, { payload: bytes(16) });
      await s.completed(['1000:SUCCESS', '1001:SUCCESS', '1002:SUCCESS'], 'three messages');
    },
  ),
  rule(
    'UC-06',
    {
      title: 'UC: without a receive the message is dropped, the queue pair lives',
      section: '9.8.2.2.4',
      needs: ['uc', 'receives', 'completions'],
      text: UNANSWERED,
    },
    async (t) => {
      const s = await t.uc();
      s.send('UC_SEND_ONLY', 0, { payload: bytes(8) });
      await t.pass(30);
      await s.receive({ id: 1, length: 64 });
      s.send('UC_SEND_ONLY', 1, { payload: bytes(9) });
      const [completion] = await s.completed(['1:SUCCESS'], 'the second message');
      t.want(completion?.length === 9, `received ${completion?.length} B of 9`);
    },
  ),
  rule(
    'UC-07',
    {
      title: 'UC: a WRITE with a wrong key is dropped in silence, the queue pair lives',
      section: '9.8.2.2.4, 9.9.3',
      should: true,
      needs: ['uc', 'receives', 'completions'],
      text: UNANSWERED,
    },
    async (t) => {
      const s = await t.uc({ receives: 2 });
      s.send('UC_RDMA_WRITE_ONLY', 0, { payload: bytes(8), reth: { rkey: 0xbad } });
      await s.silence('wrong key', 60);
      s.send('UC_SEND_ONLY', 1, { payload: bytes(9) });
      await s.completed(['1000:SUCCESS'], 'then a SEND');
    },
  ),
  rule(
    'UC-08',
    {
      title: 'UC: a READ request is no operation of the service',
      section: '9.8.2',
      needs: ['uc'],
      text: UNANSWERED,
    },
    async (t) => {
      const s = await t.uc();
      s.send('RC_RDMA_READ_REQUEST', 0, { ackReq: true, reth: { length: 8 } });
      await s.silence('READ request');
    },
  ),
  rule(
    'UC-09',
    {
      title: 'UC: a WRITE with immediate takes a receive, one with a gap none',
      section: '9.8.2.2.1, 9.8.2.2.2',
      needs: ['uc', 'receives', 'completions', 'memory'],
      text: UNANSWERED,
    },
    async (t) => {
      const s = await t.uc({ receives: 3 });
      const write = (n: number, immDt: number) =>
        s.send('UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE', n, {
          payload: bytes(8, immDt),
          reth: { va: s.va + BigInt(WRITTEN) },
          extensions: { immDt },
        });
      write(0, 7);
      const [first] = await s.completed(['1000:SUCCESS'], 'a whole one');
      t.want(first?.immediate === 7, 'another immediate in the completion');
      await s.holds(WRITTEN, bytes(8, 7), 'the bytes are not there');
      // The lengths agree: the PSN alone shows that a packet is missing.
      s.send('UC_RDMA_WRITE_FIRST', 1, { payload: bytes(1024), reth: { length: 1032 } });
      s.send('UC_RDMA_WRITE_LAST_WITH_IMMEDIATE', 3, { payload: bytes(8), extensions: { immDt: 8 } });
      await s.noCompletion('one with a gap', 60);
      write(4, 9);
      const [last] = await s.completed(['1001:SUCCESS'], 'the one behind it');
      t.want(last === undefined || last.immediate === 9, 'another immediate in the second completion');
    },
  ),
  rule(
    'UC-10',
    {
      title: 'UC: a message whose PSNs wrap is received',
      section: '9.8.2.2.1',
      needs: ['uc', 'receives', 'completions'],
      text: 'It happens once in 16 million packets, and would look like a loss.',
    },
    async (t) => {
      const s = await t.uc({ receives: 2, psn: 0xff_fffe });
      s.send('UC_SEND_FIRST', 0, { payload: bytes(1024) });
      s.send('UC_SEND_MIDDLE', 1, { payload: bytes(1024) });
      s.send('UC_SEND_LAST', 2, { payload: bytes(8) });
      const [completion] = await s.completed(['1000:SUCCESS'], 'the message');
      t.want(completion?.length === 2056, `received ${completion?.length} B of 2056`);
    },
  ),
  rule(
    'UC-11',
    {
      title: 'UC: a request is complete when it was sent',
      section: '9.8.2.1',
      needs: ['uc', 'post', 'completions'],
      text: UNANSWERED,
    },
    async (t) => {
      const s = await t.uc();
      await s.post('send', { id: 1, length: 2000 });
      const names = (await s.requests(2)).map((e) => e.packet?.info.key).join(', ');
      t.want(names === 'UC_SEND_FIRST, UC_SEND_LAST', `sent ${names || 'nothing'}`);
      await s.completed(['1:SUCCESS'], 'without an answer');
    },
  ),
  rule(
    'UD-01',
    {
      title:
        'UD: a receive begins with 40 bytes for the GRH, with the IP header (IPv4: in the last 20), and names the sender',
      section: '11.4.1.2, A17.4.5.2',
      needs: ['ud', 'receives', 'completions', 'memory'],
      text: 'The program answers by what stands there.',
    },
    async (t) => {
      const s = await t.ud({ receives: 2 });
      s.datagram(0, bytes(32));
      const [completion] = await s.completed(['1000:SUCCESS'], 'the datagram');
      t.want(completion?.length === 72, `length ${completion?.length}, wanted 72`);
      t.want(completion?.sourceQpn === s.spec.qpn, 'the completion names another sender');
      const got = await s.peek(0, 72);
      const isIpv6 = t.line.tester.ip.includes(':');
      if (isIpv6) t.want(got[0] >> 4 === 6, 'no IPv6 header at byte 0');
      else t.want(got[20] === 0x45, 'no IPv4 header at byte 20');
      const source = isIpv6 ? got.slice(8, 24) : got.slice(32, 36);
      t.want(formatIpAddress(source) === t.line.tester.ip, 'another source address');
      t.want(same(got.slice(40), bytes(32)), 'wrong bytes');
    },
  ),
  rule(
    'UD-02',
    {
      title: 'UD: a datagram with another Q_Key is dropped in silence',
      section: '9.6.1.3.1, 10.2.5',
      needs: ['ud', 'receives', 'completions'],
      text: 'The Q_Key is the only protection of a datagram queue pair.',
    },
    async (t) => {
      const s = await t.ud({ receives: 1 });
      s.datagram(0, bytes(8), { qkey: 0x2222_2222 });
      await s.noCompletion('another Q_Key', 100);
      await s.silence('another Q_Key', 30);
      s.datagram(1, bytes(8));
      await s.completed(['1000:SUCCESS'], 'the right Q_Key');
    },
  ),
  rule(
    'UD-03',
    {
      title: 'UD: any PSN is received',
      section: '9.8.3',
      needs: ['ud', 'receives', 'completions'],
      text: 'Datagrams come from many senders.',
    },
    async (t) => {
      const s = await t.ud({ receives: 3 });
      for (const n of [77_777, 5, 5]) s.datagram(n, bytes(8));
      await s.completed(['1000:SUCCESS', '1001:SUCCESS', '1002:SUCCESS'], 'three datagrams');
    },
  ),
  rule(
    'UD-04',
    {
      title: 'UD: a datagram longer than the receive is dropped, the queue pair lives',
      section: '9.8.3, 11.6.2',
      needs: ['ud', 'receives', 'completions'],
      text: 'One stranger’s datagram must not end the service for all.',
    },
    async (t) => {
      const s = await t.ud();
      await s.receive({ id: 1, length: 64 });
      await s.receive({ id: 2, offset: 64, length: 512 });
      s.datagram(0, bytes(256));
      await t.pass(40);
      s.datagram(1, bytes(8));
      const got = await s.completions(1, 200);
      t.want(
        got.some(({ status }) => status === 'SUCCESS'),
        `the next datagram: ${got.map(({ status }) => status).join(', ') || 'nothing received'}`,
      );
    },
  ),
  rule(
    'UD-05',
    {
      title: 'UD: packets of other services are dropped in silence',
      section: '9.8.3',
      needs: ['ud', 'receives', 'completions'],
      text: 'Any host can send them.',
    },
    async (t) => {
      const s = await t.ud({ receives: 2 });
      s.send('RC_SEND_ONLY', 0, { ackReq: true, payload: bytes(8) });
      s.send('UC_SEND_ONLY', 0, { payload: bytes(8) });
      await s.noCompletion('other services', 100);
      await s.silence('other services', 30);
      s.datagram(1, bytes(8));
      await s.completed(['1000:SUCCESS'], 'then a datagram');
    },
  ),
  rule(
    'UD-06',
    {
      title: 'UD: a datagram is a SEND ONLY with Q_Key and source QPN, and asks for no ACK',
      section: '9.8.3, 9.3.1',
      needs: ['ud', 'post'],
      text: 'The receiver finds the sender by them.',
    },
    async (t) => {
      const s = await t.ud();
      await s.post('send_imm', { id: 1, length: 100, immediate: 0x77, qkey: 0x3333_3333 });
      const sent = await s.next();
      const { deth, immDt } = sent?.packet?.extensions ?? {};
      t.want(sent?.packet?.info.key === 'UD_SEND_ONLY_WITH_IMMEDIATE', `sent ${s.describe(sent)}`);
      t.want(deth?.qkey === 0x3333_3333, 'another Q_Key');
      t.want(deth?.srcQp === s.qpn, 'another source QPN');
      t.want(immDt === 0x77, 'wrong immediate data');
      t.want(sent?.packet?.bth.ackReq === false, 'AckReq on a datagram');
    },
  ),
  rule(
    'UD-07',
    {
      title: 'UD: a Q_Key with the top bit set stands for the queue pair’s own',
      section: '10.2.5',
      needs: ['ud', 'post', 'attributes'],
      text: 'Such keys are for privileged programs.',
    },
    async (t) => {
      const s = await t.ud({ qkey: 0x5555 });
      await s.post('send', { id: 1, length: 8, qkey: 0x8000_1234 });
      const sent = await s.next();
      t.want(sent?.packet?.extensions.deth?.qkey === 0x5555, `another Q_Key in ${s.describe(sent)}`);
    },
  ),
  rule(
    'UD-11',
    {
      title: 'UD: a datagram with a P_Key that the port has not is dropped in silence',
      section: '10.9.3',
      needs: ['ud', 'receives', 'completions'],
      text: 'Partitions keep hosts apart.',
    },
    async (t) => {
      const s = await t.ud({ receives: 1 });
      s.datagram(0, bytes(8), { bth: { pkey: 0x9234 } });
      await s.noCompletion('another P_Key', 100);
      await s.silence('another P_Key', 30);
      s.datagram(1, bytes(8));
      await s.completed(['1000:SUCCESS'], 'the right P_Key');
    },
  ),
];
