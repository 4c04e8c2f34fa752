/** States of a queue pair (IBTA vol 1 §10.3.1), and packets that are no packets. */
import { encodeBth, psnAdd } from '@node-roce/wire';
import { bytes } from '../device-side.ts';
import type { Entry } from '../line.ts';
import { rule } from '../rule.ts';
import type { Session } from '../session.ts';
import { drawFrom } from './draw.ts';

const ROBUST = 'Any host that can reach the port can send it.';

/** The name of `ibv_event_type_str`. */
const DRAINED = 'send queue drained';

/** Neither responses, which are for the requester, nor SENDs that invalidate, which some devices log. */
const RC_REQUESTS = [0, 1, 2, 4, 5, 6, 7, 8, 10, 11, 12, 19, 20, 28, 29];
const isOther = (opcode: number): boolean => (opcode & 0x1f) < 0x0d || (opcode & 0x1f) > 0x17;
const FUZZED_CONNECTIONS = 50;
const FUZZED_PACKETS = 20;

/** A packet that is right here and there; its RETH names the own region, the one of another connection, or none. */
function fuzzed(s: Session, other: Session, draw: (n: number) => number, i: number): Uint8Array {
  const any = draw(256);
  const opcode = draw(8) === 0 && isOther(any) ? any : RC_REQUESTS[draw(RC_REQUESTS.length)];
  const body = Uint8Array.from({ length: 12 + (draw(3) > 0 ? draw(64) : draw(1100)) }, () => draw(256));
  if (draw(2) > 0 && body.length >= 28) {
    const { va, rkey } = draw(3) > 0 ? s : other;
    const key = draw(4) > 0 ? rkey : draw(1 << 30);
    body.set(s.rethBytes(draw(2048), va + BigInt(draw(60_000)), key), 12);
  }
  encodeBth(body, 0, {
    opcode,
    solicited: draw(2) > 0,
    migReq: true,
    pad: draw(4),
    tver: draw(20) > 0 ? 0 : draw(16),
    pkey: 0xffff,
    fecn: false,
    becn: false,
    reserved6: 0,
    destQp: s.qpn,
    ackReq: draw(2) > 0,
    reserved7: 0,
    psn: psnAdd(s.spec.psn, i - draw(4) + draw(3)),
  });
  return body;
}

/** A WRITE, right but for the region, which is another connection's and gives no rights. */
const forbidden = (s: Session, other: Session, draw: (n: number) => number): Uint8Array =>
  s.rawBytes(0x0a, 0, s.rethBytes(64, other.va + BigInt(draw(60_000)), other.rkey), bytes(64, draw(256)));

export const stateRules = [
  rule(
    'STA-01',
    {
      title: 'a queue pair that is not connected drops everything in silence',
      section: '10.3.1',
      needs: ['rc', 'write', 'read', 'init'],
      text: 'Packets of the last connection that had its number may still come, and anybody may guess it.',
    },
    async (t) => {
      const s = await t.rc({ state: 'INIT' });
      s.write(0);
      s.read(1, 64);
      s.sendOnly(2);
      s.acknowledge(0);
      await t.pass(t.waits.quiet);
      // An answer would go to a queue pair that it cannot know.
      // Others of these two hosts may talk meanwhile.
      const answers = t.entries.filter(
        ({ from, packet }) => from === 'device' && [0, s.spec.qpn].includes(packet?.bth.destQp ?? -1),
      );
      t.want(answers.length === 0, `before it is connected: ${s.list(answers)}`);
    },
  ),
  rule(
    'STA-04',
    {
      title: 'a destroyed queue pair answers nothing',
      section: '10.2.4',
      needs: ['rc', 'write', 'destroy'],
      text: 'Its memory may be gone, its number given to another.',
    },
    async (t) => {
      const s = await t.rc();
      s.write(0);
      await s.ack(0);
      await s.destroyQp();
      s.write(1);
      await s.silence('after the queue pair was destroyed');
    },
  ),
  rule(
    'STA-05',
    {
      title: 'in the error state nothing is answered, and receives are flushed',
      section: '10.3.1.7',
      needs: ['rc', 'write', 'receives', 'completions', 'fail'],
      text: 'A program that ends a connection gets its buffers back and hears no more of it.',
    },
    async (t) => {
      const s = await t.rc({ receives: 1 });
      await s.fail();
      s.write(0);
      await s.silence('in the error state');
      await s.completed(['1000:WR_FLUSH_ERR'], 'the receive');
    },
  ),
  rule(
    'STA-06',
    {
      title: 'a queue pair in RTR answers requests',
      section: '10.3.1.4',
      needs: ['rc', 'write', 'rtr'],
      text: 'The peer may send as soon as it is ready, before this side is.',
    },
    async (t) => {
      const s = await t.rc({ state: 'RTR' });
      s.write(0);
      await s.ack(0);
    },
  ),
  rule(
    'STA-07',
    {
      title: 'a send queue that is drained: what was begun is done, the rest waits, one event tells',
      section: '10.3.1.5, 11.6.3.1',
      needs: ['rc', 'post', 'completions', 'events', 'drain'],
      text: 'A program changes attributes of the connection then. It counts on the event, and on a queue that stands still.',
    },
    async (t) => {
      const s = await t.req({ timeout: 20 });
      // Those of the rules before.
      await s.events(0);
      await s.post('send', { id: 1, length: 32 });
      await s.requests(1);
      await s.drain();
      await s.post('send', { id: 2, length: 32 });
      const isSecond = (entry: Entry) => s.requestAt(entry) === 1;
      t.want(!(await s.all()).some(isSecond), 'a request that was not begun is sent');
      t.want((await s.events(0)).length === 0, 'an event before the request that was begun is done');
      s.acknowledge(0);
      await s.completed(['1:SUCCESS'], 'the request that was begun');
      const events = await s.events();
      // A queue that is not drained yet refuses to go on.
      if (!t.want(events.join() === DRAINED, `${events.join(', ') || 'no event'}, wanted ${DRAINED}`)) return;
      t.want((await s.events(60)).length === 0, 'a second event');
      t.want(!(await s.all(60)).some(isSecond), 'a request is sent from a queue that is drained');
      await s.resume();
      const came = await s.allUntil(isSecond);
      t.want(came.some(isSecond), 'the request that waited is not sent in RTS');
      s.acknowledge(1);
      await s.completed(['2:SUCCESS'], 'the request that waited');
    },
  ),
  rule(
    'ROB-01',
    {
      title: 'a pad count greater than the payload is not acknowledged',
      section: '9.7.4.1.6',
      needs: ['rc', 'receives', 'completions'],
      text: `${ROBUST} Its length is below zero.`,
      hostile: true,
    },
    async (t) => {
      const s = await t.rc({ receives: 1 });
      s.sendOnly(0, new Uint8Array(0), { bth: { pad: 3 }, pad: new Uint8Array(0) });
      const answers = await s.all();
      t.want(
        !answers.some((e) => (e.packet?.extensions.aeth?.syndrome ?? 0xff) < 0x20),
        `acknowledged: ${s.list(answers)}`,
      );
      await s.noSuccess('the receive', 50);
    },
  ),
  rule(
    'ROB-02',
    {
      title: 'a packet that ends inside its RETH is dropped',
      section: '9.6.1',
      needs: ['rc', 'write'],
      text: `${ROBUST} The rest of the RETH is memory behind the packet.`,
      hostile: true,
    },
    async (t) => {
      const s = await t.rc();
      s.raw(0x0a, 0, s.rethBytes(8).slice(0, 8));
      await s.silence('cut RETH');
      s.write(0);
      await s.ack(0, 'then a WRITE');
    },
  ),
  rule(
    'ROB-03',
    {
      title: 'datagrams too short for a BTH are dropped',
      section: '9.6.1',
      needs: ['rc', 'write'],
      text: ROBUST,
      hostile: true,
    },
    async (t) => {
      const s = await t.rc();
      for (const length of [8, 0, 11]) t.datagram(new Uint8Array(length));
      await s.silence('cut BTH');
      s.write(0);
      await s.ack(0, 'then a WRITE');
    },
  ),
  rule(
    'ROB-04',
    {
      title: 'responses that nobody asked for draw nothing and change nothing',
      section: '9.7.5',
      needs: ['rc', 'write'],
      text: ROBUST,
      hostile: true,
    },
    async (t) => {
      const s = await t.rc();
      s.acknowledge(0);
      s.reply('RC_RDMA_READ_RESPONSE_ONLY', 3, { payload: bytes(64) });
      s.reply('RC_ATOMIC_ACKNOWLEDGE', 5, { extensions: { atomicAckEth: { original: 7n } } });
      s.acknowledge(0, { syndrome: 0x61 });
      s.acknowledge(7, { syndrome: 0x63 });
      s.acknowledge(-1, { syndrome: 0x60 });
      await s.silence('responses without a request');
      s.write(0);
      await s.ack(0, 'then a WRITE');
    },
  ),
  rule(
    'FUZ-01',
    {
      title:
        '3,000 packets that are partly right: a region without rights stays as it is, and the device lives',
      section: '9.6.1',
      needs: ['rc', 'write', 'receives', 'regions', 'memory'],
      text: ROBUST,
      hostile: true,
    },
    async (t) => {
      const draw = drawFrom(1);
      const closed = await t.rc({ regionAccess: [] });
      const before = await closed.peek(0, 65_536);
      for (let k = 0; k < FUZZED_CONNECTIONS; k++) {
        const s = await t.rc({ receives: 4 });
        if (draw(4) === 0) t.datagram(forbidden(s, closed, draw));
        for (let i = 0; i < FUZZED_PACKETS; i++) t.datagram(fuzzed(s, closed, draw, i));
        await t.pass(5);
        await s.close();
      }
      await closed.holds(0, before, 'a region without rights was changed');
      const s = await t.rc();
      s.write(0);
      await s.ack(0, 'a new connection afterwards');
    },
  ),
];
