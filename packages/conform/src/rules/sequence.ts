/** The order of opcodes in a message, and reserved opcodes (IBTA vol 1 §9.7.4.1.2, §9.7.4.1.3). */
import { bytes } from '../device-side.ts';
import { rule } from '../rule.ts';

const SECTION = '9.7.4.1.2';
const MESSAGE = 'Executed, it would put bytes of one message into the memory of another.';

/** Opcodes of a reliable connection that no operation has. */
const RESERVED = [0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f];

export const sequenceRules = [
  rule(
    'SEQ-01',
    {
      title: 'a MIDDLE without a FIRST is an invalid request',
      section: SECTION,
      needs: ['rc', 'receives'],
      text: MESSAGE,
      first: true,
    },
    async (t) => {
      const s = await t.rc({ receives: 1 });
      s.follow('RC_SEND_MIDDLE', 0, bytes(1024));
      await s.nak('invalid', 0);
      await s.dead(1);
    },
  ),
  rule(
    'SEQ-02',
    {
      title: 'a LAST without a FIRST is an invalid request',
      section: SECTION,
      needs: ['rc'],
      text: MESSAGE,
    },
    async (t) => {
      const s = await t.rc();
      s.follow('RC_RDMA_WRITE_LAST', 0, bytes(16));
      await s.nak('invalid', 0);
      await s.dead(1);
    },
  ),
  rule(
    'SEQ-03',
    {
      title: 'a message that begins inside another is an invalid request',
      section: SECTION,
      needs: ['rc', 'receives'],
      text: MESSAGE,
      first: true,
    },
    async (t) => {
      const s = await t.rc({ receives: 2 });
      s.send('RC_SEND_FIRST', 0, { payload: bytes(1024) });
      s.sendOnly(1);
      await s.nak('invalid', 1);
      await s.dead(2);
    },
  ),
  rule(
    'SEQ-04',
    {
      title: 'a SEND does not continue a WRITE',
      section: SECTION,
      needs: ['rc', 'write', 'receives'],
      text: MESSAGE,
    },
    async (t) => {
      const s = await t.rc({ receives: 2 });
      // As long as the WRITE announced: only the opcode is wrong.
      s.writeFirst(0, bytes(1024), 1032);
      s.follow('RC_SEND_LAST', 1, bytes(8));
      await s.nak('invalid', 1);
      await s.dead(2);
    },
  ),
  rule(
    'SEQ-05',
    {
      title: 'a READ request inside a WRITE is an invalid request',
      section: SECTION,
      needs: ['rc', 'write', 'read'],
      text: MESSAGE,
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      s.writeFirst(0, bytes(1024), 2048);
      s.read(1, 8);
      await s.nak('invalid', 1);
      await s.dead(2);
    },
  ),
  rule(
    'SEQ-06',
    {
      title: 'a WRITE LAST does not continue a SEND',
      section: SECTION,
      needs: ['rc', 'receives'],
      text: MESSAGE,
    },
    async (t) => {
      const s = await t.rc({ receives: 1 });
      s.send('RC_SEND_FIRST', 0, { payload: bytes(1024) });
      s.follow('RC_RDMA_WRITE_LAST', 1, bytes(8));
      await s.nak('invalid', 1);
    },
  ),
  rule(
    'SEQ-07',
    {
      title: 'after a fault in mid-message the receive in use fails, the others are flushed in order',
      section: '10.3.1.7',
      needs: ['rc', 'write', 'receives', 'completions'],
      text: 'The program gets its buffers back by these completions.',
    },
    async (t) => {
      const s = await t.rc({ receives: 3 });
      s.send('RC_SEND_FIRST', 0, { payload: bytes(1024) });
      s.write(1);
      await s.next();
      const got = await s.completions(3, 300);
      const ids = got.map(({ id }) => id).join(', ');
      t.want(ids === '1000, 1001, 1002', `receives ${ids || 'none'}, wanted 1000, 1001, 1002`);
      const [first, ...rest] = got.map(({ status }) => status);
      t.want(first !== undefined && first !== 'SUCCESS', `the receive in use: ${first}`);
      t.want(
        rest.every((status) => status === 'WR_FLUSH_ERR'),
        `the others: ${rest.join(', ')}`,
      );
    },
  ),
  rule(
    'SEQ-08',
    {
      title: 'an atomic inside a SEND is an invalid request',
      section: SECTION,
      needs: ['rc', 'atomic', 'receives'],
      text: MESSAGE,
    },
    async (t) => {
      const s = await t.rc({ receives: 1 });
      s.send('RC_SEND_FIRST', 0, { payload: bytes(1024) });
      s.fetchAdd(1, 9n, 8192);
      await s.nak('invalid', 1);
    },
  ),
  rule(
    'OPC-01',
    {
      title: 'a reserved opcode of the service is an invalid request',
      section: '9.7.4.1.3',
      should: true,
      needs: ['rc'],
      text: 'Disputed: §9.6.1 lets a device drop it. A NAK shows a newer peer at once what this device has not.',
    },
    async (t) => {
      const s = await t.rc();
      s.raw(0x1f, 0);
      await s.nak('invalid', 0);
    },
  ),
  rule(
    'OPC-02',
    {
      title: 'an opcode of another service is dropped in silence',
      section: '9.6.1.1',
      needs: ['rc', 'write'],
      text: 'It is not for this queue pair: an answer would end a connection by a packet that never belonged to it.',
      first: true,
    },
    async (t) => {
      const s = await t.rc();
      s.send('UC_RDMA_WRITE_ONLY', 0, { ackReq: true, payload: bytes(8), reth: {} });
      s.datagram(0, bytes(8), { ackReq: true });
      await s.silence('UC and UD');
      s.write(0);
      await s.ack(0, 'then a WRITE');
    },
  ),
  rule(
    'OPC-03',
    {
      title: 'opcodes of RD and XRC, and 0xc0 to 0xff, are dropped in silence',
      section: '9.6.1.1',
      needs: ['rc', 'write'],
      text: 'They are not for this queue pair.',
    },
    async (t) => {
      const s = await t.rc();
      for (const opcode of [0x44, 0x4a, 0xa4, 0xaa, 0xc0, 0xe0, 0xff]) {
        s.raw(opcode, 0, s.rethBytes(8), bytes(8));
      }
      await s.silence('other services');
      s.write(0);
      await s.ack(0, 'then a WRITE');
    },
  ),
  rule(
    'OPC-05',
    {
      title:
        'a reserved opcode of a reliable connection draws an invalid request NAK or silence, nothing else',
      section: '9.7.4.1.3',
      needs: ['rc', 'memory'],
      text: 'A device must not take it for an opcode that it knows.',
    },
    async (t) => {
      for (const opcode of RESERVED) {
        const s = await t.rc();
        const name = `0x${opcode.toString(16)}`;
        const before = bytes(8, 77);
        await s.poke(0, before);
        s.raw(opcode, 0, s.rethBytes(8), bytes(8));
        const answers = await s.all(80);
        const ok = answers.length <= 1 && answers.every((e) => e.packet?.extensions.aeth?.syndrome === 0x61);
        t.want(ok, `${name}: got ${s.list(answers)}`);
        await s.holds(0, before, `${name}: memory was changed`);
        await s.close();
      }
    },
  ),
];
