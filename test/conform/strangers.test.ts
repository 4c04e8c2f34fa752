/** `open` and `play` over real sockets, against a device that floods next to an agent that does as it is told. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { open, play, rules } from '@node-roce/conform';
import { buildPacket } from '@node-roce/wire';
import { afterAll, beforeAll, expect, test } from 'vitest';

const [HERE, THERE] = ['127.0.0.1', '127.0.0.93'];
/** Headers below the BTH. */
const UDP_END = 42;
/** Waits that nothing but an event ends. */
const LONG = 60_000;
/** Packets of a turn of the event loop. */
const BURST = 30;

const ANSWERS: Readonly<Record<string, object>> = {
  hello: { device: 'flood' },
  mr: { mr: 0, addr: '4096', rkey: 7 },
  qp: { qp: 0, qpn: 17 },
  connect: {},
  state: { state: 'RTS' },
  drop: {},
};

const device = createSocket('udp4');
let [isOver, destQp] = [false, 0];

/** An agent of six verbs, which tells the device where its peer is. */
const agent = createServer((socket) => {
  socket.on('error', () => {});
  createInterface({ input: socket }).on('line', (line) => {
    destQp = Number(/ dqpn=(\d+)/.exec(line)?.[1] ?? destQp);
    const answer = ANSWERS[line.split(' ')[0]];
    const lack = { ok: false, what: 'verb', errno: 38, text: 'Function not implemented' };
    socket.write(`${JSON.stringify(answer === undefined ? lack : { ok: true, ...answer })}\n`);
  });
});

/** ACKs without end, from the first packet on. */
function flood(): void {
  if (isOver) return;
  const none = '00:00:00:00:00:00';
  const frame = buildPacket({
    ethernet: { source: none, destination: none },
    ip: { source: THERE, destination: HERE, ttl: 64 },
    udp: { sourcePort: 4791 },
    bth: { opcode: 'RC_ACKNOWLEDGE', destQp, psn: 0 },
    extensions: { aeth: { syndrome: 0x1f, msn: 0 } },
  });
  for (let i = 0; i < BURST; i++) device.send(frame.subarray(UDP_END), 4791, HERE);
  setImmediate(flood);
}

beforeAll(async () => {
  agent.listen(18_777, THERE);
  device.bind(4791, THERE);
  await Promise.all([once(agent, 'listening'), once(device, 'listening')]);
});
afterAll(() => {
  isOver = true;
  device.close();
  agent.close();
});

test('a device that floods breaks the rule, and neither ends the tester nor keeps it', async () => {
  device.once('message', flood);
  const bench = await open({ via: 'agent', host: THERE, link: 'udp', quiet: LONG, patience: LONG });
  try {
    // The second time, from the first packet on.
    for (let i = 0; i < 2; i++) {
      const { verdict, why, entries } = await play(rules('PSN-01')[0], bench);
      expect([verdict, why.at(-1)]).toEqual(['broken', expect.stringContaining('does not stop sending')]);
      expect(entries.length).toBeLessThan(10_000);
    }
  } finally {
    await bench.close();
  }
});
