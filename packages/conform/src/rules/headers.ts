/** Headers from IP to BTH, the ICRC, and ECN (IBTA vol 1 §9.2, §9.6.1, annex A17). */
import { bytes, same } from '../device-side.ts';
import { type Rule, rule } from '../rule.ts';
import type { PacketOptions } from '../session.ts';

const DROPPED = 'It is not for this queue pair: an answer would let a stray packet disturb a connection.';

/** One packet with these options draws nothing, and the connection goes on. */
function dropped(id: string, title: string, section: string, options: PacketOptions, first = true): Rule {
  return rule(id, { title, section, needs: ['rc', 'write'], text: DROPPED, first }, async (t) => {
    const s = await t.rc();
    s.write(0, bytes(8), 0, options);
    await s.silence(title);
    await s.alive(0);
  });
}

/** Packets with each of these options are taken as any other. */
function taken(
  id: string,
  title: string,
  variants: Readonly<Record<string, PacketOptions>>,
  spec: Partial<Rule> & { text: string },
): Rule {
  const full = { title, section: 'A17.3', needs: ['rc', 'write', 'frames'] as const, ...spec };
  return rule(id, full, async (t) => {
    const s = await t.rc();
    if (full.needs.includes('frames')) t.use('frames');
    s.write(0);
    await s.ack(0, 'the usual packet');
    let n = 1;
    for (const [name, options] of Object.entries(variants)) {
      s.write(n, bytes(8), 0, options);
      // A packet that was dropped leaves a gap: nothing after it can be judged.
      if (!s.isAck(await s.next(), n, name)) return;
      n++;
    }
  });
}

export const headerRules = [
  rule(
    'HDR-01',
    {
      title: 'a packet with a wrong ICRC is dropped in silence',
      section: 'A17.3.3',
      needs: ['rc', 'write', 'memory'],
      text: 'The ICRC is the only check of the data from end to end.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      const before = await s.peek(0, 64);
      s.write(0, bytes(64, 3), 0, { icrc: 0x1234_5678 });
      await s.silence('wrong ICRC');
      t.want(same(before, await s.peek(0, 64)), 'memory was changed');
      s.write(0, bytes(64, 3));
      await s.ack(0, 'with the right ICRC');
    },
  ),
  dropped('HDR-02', 'a packet with another P_Key is dropped in silence', '9.6.1.1.3', {
    bth: { pkey: 0x9234 },
  }),
  rule(
    'HDR-03',
    {
      title: 'a limited member talks to a full member',
      section: '10.9.3',
      needs: ['rc', 'write'],
      text: 'The top bit of the P_Key is the membership, no part of the partition’s number.',
    },
    async (t) => {
      const s = await t.rc();
      s.write(0, bytes(8), 0, { bth: { pkey: 0x7fff } });
      await s.ack(0, 'P_Key 0x7fff');
    },
  ),
  rule(
    'HDR-04',
    {
      title: 'packets for a queue pair that does not exist are dropped in silence',
      section: '9.6.1.1',
      needs: ['rc', 'write'],
      text: DROPPED,
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      for (const destQp of [0xab_cdef, 0]) s.write(0, bytes(8), 0, { bth: { destQp } });
      await s.silence('another QPN');
      await s.alive(0);
    },
  ),
  dropped('HDR-05', 'a packet with another transport header version is dropped in silence', '9.6.1.1.1', {
    bth: { tver: 1 },
  }),
  taken(
    'HDR-06',
    'MigReq, reserved bits, FECN and BECN make no difference',
    {
      'MigReq 0': { bth: { migReq: false } },
      'MigReq 1': { bth: { migReq: true } },
      'six reserved bits': { bth: { reserved6: 0x3f } },
      'seven reserved bits': { bth: { reserved7: 0x7f } },
      BECN: { bth: { becn: true } },
      FECN: { bth: { fecn: true } },
    },
    {
      section: '9.2',
      needs: ['rc', 'write'],
      text: 'Receivers ignore reserved bits, or no later version can use them.',
      first: true,
    },
  ),
  taken(
    'HDR-07',
    'any UDP source port, and another one in the midst of a connection',
    {
      'port 1': { udp: { sourcePort: 1 } },
      'port 4791': { udp: { sourcePort: 4791 } },
      'port 0': { udp: { sourcePort: 0 } },
      'port 65535': { udp: { sourcePort: 0xffff } },
    },
    { text: 'The source port is there for load balancing alone.', first: true },
  ),
  taken(
    'HDR-11',
    'any IPv4 identification',
    {
      'ID 1': { ip: { id: 1 } },
      'ID 40': { ip: { id: 40 } },
      'ID 48879': { ip: { id: 0xbeef } },
      'ID 7': { ip: { id: 7 } },
    },
    {
      section: 'A17.3, RFC 6864',
      text: 'Of a datagram that is not to be fragmented it means nothing; hosts count, draw or leave it 0.',
      first: true,
    },
  ),
  taken(
    'HDR-12',
    'any DSCP and TTL',
    {
      'DSCP 26': { ip: { tos: 0x68 } },
      'ECT(0)': { ip: { tos: 2 } },
      'ECT(1)': { ip: { tos: 1 } },
      'TTL 1': { ip: { ttl: 1 } },
      'TTL 255': { ip: { ttl: 255 } },
    },
    { text: 'Networks change the one and count the other down.' },
  ),
  taken(
    'HDR-13',
    'a packet without DF',
    { 'DF 0': { ip: { flagsAndOffset: 0 } } },
    {
      should: true,
      text: 'Small stacks have no flags in their IPv4 header.',
      first: true,
    },
  ),
  rule(
    'HDR-08',
    {
      title: 'a UDP checksum of 0 and a right one are taken, a wrong one is not',
      section: 'A17.3, RFC 768',
      needs: ['rc', 'write', 'frames'],
      text: 'Software senders compute it; hardware leaves it 0.',
    },
    async (t) => {
      t.use('frames');
      const s = await t.rc();
      s.write(0, bytes(8), 0, { udp: { checksum: 'compute' } });
      await s.ack(0, 'right checksum');
      s.write(1, bytes(8), 0, { udp: { checksum: 0x1234 } });
      await s.silence('wrong checksum');
      await s.alive(1);
    },
  ),
  rule(
    'HDR-09',
    {
      title: 'bytes of Ethernet behind the packet are ignored',
      section: 'A17.3',
      needs: ['rc', 'receives', 'completions', 'frames'],
      text: 'Short frames are padded to 60 bytes.',
    },
    async (t) => {
      t.use('frames');
      const s = await t.rc({ receives: 1 });
      s.sendOnly(0, new Uint8Array(0), { trailer: new Uint8Array(2) });
      await s.ack(0, 'SEND of 0 bytes in a frame of 60');
      const [completion] = await s.completed(['1000:SUCCESS'], 'the SEND');
      t.want(completion?.length === 0, `received ${completion?.length} B of 0`);
    },
  ),
  rule(
    'HDR-20',
    {
      title: 'a packet whose UDP length and IP length disagree is dropped',
      section: '9.6.1, RFC 768',
      needs: ['rc', 'write', 'frames'],
      text: 'One of the two is wrong: the payload has not the length that it seems to have.',
    },
    async (t) => {
      t.use('frames');
      const s = await t.rc();
      const usual = 8 + 12 + 16 + 8 + 4;
      for (const length of [usual - 4, usual + 4, 8, 0]) {
        s.write(0, bytes(8), 0, { udp: { length } });
        await s.silence(`UDP length ${length - usual} B from the right one`, 30);
      }
      await s.alive(0);
    },
  ),
  rule(
    'HDR-10',
    {
      title: 'a packet from another address is not the connection’s',
      section: 'A17.4.5',
      should: true,
      needs: ['rc', 'write', 'spoof'],
      text: 'A forger has to guess the address as well as QPN and PSN.',
    },
    async (t) => {
      const s = await t.rc();
      s.write(0, bytes(8), 0, { ip: { source: t.otherAddress() } });
      await s.silence('from another address');
      await s.alive(0);
    },
  ),
  rule(
    'ECN-01',
    {
      title: 'a packet marked CE is answered with a CNP',
      section: 'A17.9.3',
      should: true,
      needs: ['rc', 'write', 'frames'],
      text: 'Without CNPs the sender’s congestion control sees nothing. Many devices have it off by default.',
      first: true,
    },
    async (t) => {
      t.use('frames');
      const s = await t.rc();
      s.write(0, bytes(64), 0, { ip: { tos: 3 } });
      const answers = await s.all();
      t.want(
        answers.some((e) => e.packet?.info.key === 'RC_ACKNOWLEDGE'),
        'the packet was not acknowledged',
      );
      const cnp = answers.find((e) => e.packet?.info.key === 'CNP');
      t.want(cnp !== undefined, 'no CNP');
      t.want(cnp?.packet?.bth.becn !== false, 'a CNP without BECN');
    },
  ),
  rule(
    'ECN-02',
    {
      title: 'a CNP is never answered',
      section: 'A17.9.3',
      needs: ['rc', 'write'],
      text: 'Two devices would answer each other for ever.',
    },
    async (t) => {
      const s = await t.rc();
      t.send({ bth: { opcode: 'CNP', destQp: s.qpn, becn: true } });
      await s.silence('CNP');
      s.write(0);
      await s.ack(0, 'then a WRITE');
    },
  ),
  rule(
    'CNP-01',
    {
      title: 'a CNP is taken in silence and loses nothing',
      section: 'A17.9.3',
      needs: ['rc', 'post', 'completions'],
      text: 'It asks for a lower rate, no more.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      await s.post('send', { id: 1, length: 32 });
      await s.next();
      t.send({ bth: { opcode: 'CNP', destQp: s.qpn, becn: true } });
      s.acknowledge(0);
      await s.completed(['1:SUCCESS'], 'SEND');
      // A repetition may have crossed the ACK.
      await s.all(10);
      await s.silence('after the CNP', 60);
    },
  ),
  rule(
    'CNP-02',
    {
      title: 'a CNP for a queue pair that does not exist is taken in silence',
      section: 'A17.9.3',
      needs: ['rc', 'write'],
      text: DROPPED,
    },
    async (t) => {
      const s = await t.rc();
      t.send({ bth: { opcode: 'CNP', destQp: 0xab_cdef, becn: true } });
      await s.silence('CNP');
      s.write(0);
      await s.ack(0, 'then a WRITE');
    },
  ),
  rule(
    'RSP-01',
    {
      title: 'every response: ICRC, P_Key, version, pad, no AckReq, reserved bit of the syndrome 0',
      section: '9.2, 9.3, A17.3',
      needs: ['rc', 'write', 'read', 'atomic', 'receives'],
      text: 'Strict peers drop what is not as it should be.',
      first: true,
    },
    async (t) => {
      const s = await t.rc({ receives: 4 });
      s.write(0, bytes(9));
      s.read(1, 1025);
      s.sendOnly(3, bytes(3));
      s.fetchAdd(4, 1n);
      s.write(9, bytes(1));
      const answers = await s.collect(6);
      t.want(answers.length === 6, `${answers.length} answers, wanted 6`);
      for (const { packet } of answers) {
        if (packet === undefined) continue;
        const { bth, extensions, info, icrcStatus, pad = [], payload } = packet;
        t.want(icrcStatus === 'ok', `${info.name}: wrong ICRC`);
        t.want((bth.pkey & 0x7fff) === 0x7fff, `${info.name}: another P_Key`);
        t.want(bth.tver === 0, `${info.name}: TVer ${bth.tver}`);
        t.want((extensions.aeth?.syndrome ?? 0) < 0x80, `${info.name}: top bit of the syndrome is 1`);
        t.want(bth.pad === (-payload.length & 3), `${info.name}: pad count ${bth.pad}`);
        t.want(
          [...pad].every((byte) => byte === 0),
          `${info.name}: pad bytes that are not 0`,
        );
        t.want(!bth.ackReq, `${info.name}: AckReq on a response`);
      }
    },
  ),
  rule(
    'RSP-02',
    {
      title: 'MigReq is 1 in packets of a connection without an alternate path',
      section: '17.2.8',
      needs: ['rc', 'write'],
      text: 'A peer with path migration takes a 0 for a request to migrate.',
    },
    async (t) => {
      const s = await t.rc();
      s.write(0);
      const answer = await s.ack(0);
      t.want(answer?.packet?.bth.migReq !== false, 'MigReq is 0');
    },
  ),
];
