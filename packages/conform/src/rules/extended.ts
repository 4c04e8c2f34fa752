/** Extended reliable connections (IBTA vol 1 annex A14): each request names a shared receive queue of its target's domain. */
import type { OpcodeName } from '@node-roce/wire';
import type { Case } from '../case.ts';
import { bytes } from '../device-side.ts';
import type { Entry } from '../line.ts';
import { rule } from '../rule.ts';
import type { PacketOptions, Session } from '../session.ts';

const MTU = 1024;
/** A queue of the tester. */
const PEER_SRQN = 0x12_3456;

/** A request that names a shared receive queue. */
function sendTo(s: Session, srq: number, opcode: OpcodeName, n: number, options: PacketOptions = {}): Entry {
  return s.send(opcode, n, { ackReq: true, extensions: { xrceth: { reserved: 0, srq } }, ...options });
}

/** A target whose first queue has a receive. */
async function target(t: Case): Promise<{ s: Session; own: number; other: number }> {
  const s = await t.xrc('target');
  await s.receive({ id: 1, length: 4096 });
  const [own, other] = s.srqns;
  return { s, own, other };
}

export const extendedRules = [
  rule(
    'XRC-01',
    {
      title: 'XRC: a request for a queue that the domain has not is an invalid request',
      section: 'A14, 9.7.4.1.6',
      needs: ['xrc', 'receives', 'completions'],
      text: 'The number is the peer’s word: a wrong one must reach no queue and no memory of another program.',
    },
    async (t) => {
      const { s, own, other } = await target(t);
      sendTo(s, own, 'XRC_SEND_ONLY', 0, { payload: bytes(8) });
      await s.ack(0, 'a SEND to the queue');
      await s.completed(['1:SUCCESS'], 'a SEND to the queue');
      // Neither of the two.
      const nobody = [0xff_fff0, 0xff_fff1, 0xff_fff2].find((each) => each !== own && each !== other)!;
      sendTo(s, nobody, 'XRC_SEND_ONLY', 1, { payload: bytes(8) });
      await s.nak('invalid', 1, 'a SEND to a queue of nobody');
      const again = await target(t);
      sendTo(again.s, nobody, 'XRC_RDMA_WRITE_ONLY', 0, { payload: bytes(8), reth: {} });
      await again.s.nak('invalid', 0, 'a WRITE to a queue of nobody');
    },
  ),
  rule(
    'XRC-02',
    {
      title: 'XRC: each packet of a request, and of its repetition, names the queue',
      section: 'A14',
      needs: ['xrc', 'post', 'completions'],
      text: 'The target keeps no queue of its own: a packet without the number is of no message.',
    },
    async (t) => {
      const s = await t.xrc('initiator', { timeout: 14 });
      await s.post('send', { id: 1, length: 2 * MTU + 3, remoteSrqn: PEER_SRQN });
      const sent = await s.requests(3);
      const again = await s.allUntil((entry) => s.requestAt(entry) === 0);
      const names = sent.map(({ packet }) => packet?.info.key).join(', ');
      const wanted = 'XRC_SEND_FIRST, XRC_SEND_MIDDLE, XRC_SEND_LAST';
      t.want(names === wanted, `sent ${names || 'nothing'}, wanted ${wanted}`);
      t.want(again.length > 0, 'no repetition');
      const isNamed = ({ packet }: Entry) => packet?.extensions.xrceth?.srq === PEER_SRQN;
      t.want(sent.every(isNamed), 'a packet does not name the queue of the request');
      t.want(again.every(isNamed), 'a repetition does not name the queue of the request');
      s.reply('XRC_ACKNOWLEDGE', 2);
      await s.completed(['1:SUCCESS'], 'the SEND');
    },
  ),
  rule(
    'XRC-03',
    {
      title: 'XRC: a message that goes on to another queue is an invalid request',
      section: 'A14, 9.7.4.1.2',
      needs: ['xrc', 'receives', 'completions'],
      text: 'Its second half would be in the buffer of another program.',
    },
    async (t) => {
      const { s, own, other } = await target(t);
      sendTo(s, own, 'XRC_SEND_FIRST', 0, { payload: bytes(MTU), ackReq: false });
      sendTo(s, own, 'XRC_SEND_LAST', 1, { payload: bytes(8) });
      await s.ack(1, 'a SEND of two packets');
      await s.completed(['1:SUCCESS'], 'a SEND of two packets');
      await s.receive({ id: 2, length: 4096 });
      sendTo(s, own, 'XRC_SEND_FIRST', 2, { payload: bytes(MTU), ackReq: false });
      sendTo(s, other, 'XRC_SEND_LAST', 3, { payload: bytes(8) });
      await s.nak('invalid', 3, 'a LAST to another queue');
    },
  ),
];
