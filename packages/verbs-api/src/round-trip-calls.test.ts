/** Calls of the link for a round trip of two programs that poll: each is a call of the kernel, which costs more than the engine's work. */
import { MemoryNetwork } from '@node-roce/link';
import type { RxBatch, TxBatch } from '@node-roce/transport';
import { expect, test } from 'vitest';
import { move, stopClock, turns } from '../testing/clock.ts';
import { openSide, type Side } from '../testing/pair.ts';

/** Links that count. */
function counting() {
  const counts = { sends: 0, filled: 0, empty: 0, packets: 0 };
  const network = new MemoryNetwork();
  const link = (name: string, mtu: number) => {
    const plain = network.link(name, mtu);
    const receive = plain.receive.bind(plain);
    const send = plain.send.bind(plain);
    return Object.assign(plain, {
      receive: (batch: RxBatch) => {
        const count = receive(batch);
        counts[count > 0 ? 'filled' : 'empty']++;
        return count;
      },
      send: (batch: TxBatch, from: number) => {
        counts.sends++;
        counts.packets += batch.count - from;
        return send(batch, from);
      },
    });
  };
  return { counts, network: { link } as unknown as MemoryNetwork };
}

/** Two sides that answer each other's SENDs, polling; `b` was told that `a` knows of ACKs ahead, or not. */
async function table(selective?: boolean) {
  stopClock();
  const { counts, network } = counting();
  const a = await openSide(network, '10.0.0.1');
  const b = await openSide(network, '10.0.0.2');
  await a.qp.connect(b.qp.connectionData());
  await b.qp.connect({ ...a.qp.connectionData(), ...(selective === undefined ? {} : { selective }) });
  const receive = ({ qp, mr }: Side) => qp.postRecv({ sgList: [{ mr, offset: 64, length: 64 }] });
  receive(a);
  receive(b);
  const take = ({ cq }: Side) => cq.poll().map(({ opcode, ok }) => (ok ? opcode : 'failed'));
  const post = ({ qp, mr }: Side, signaled: boolean) =>
    qp.postSend({ opcode: 'SEND', sgList: [{ mr, length: 64 }], signaled });
  const pass = (from: Side, to: Side) => {
    post(from, false);
    expect(take(from)).toEqual([]);
    receive(from);
    expect(take(to)).toEqual(['RECV']);
  };
  /** So many round trips of so many µs each; the calls and packets of each. */
  const trips = (count: number, microseconds = 0) => {
    const before = { ...counts };
    for (let i = 0; i < count; i++) {
      pass(b, a);
      move(microseconds / 2000);
      pass(a, b);
      move(microseconds / 2000);
    }
    const names = Object.keys(counts) as (keyof typeof counts)[];
    return Object.fromEntries(names.map((name) => [name, (counts[name] - before[name]) / count]));
  };
  // The first message is answered without a look; its ACK is the last that leaves alone.
  pass(a, b);
  /**
   * A round trip of 9 µs, in which `a` waits for the completion of its SEND before it goes on: how many µs longer that took than
   * the answer, 1 µs a look.
   */
  const waitingTrip = () => {
    receive(b);
    post(a, true);
    take(a);
    expect(take(b)).toEqual(['RECV']);
    post(b, false);
    take(b);
    move(0.009);
    const came = take(a);
    receive(a);
    for (let looks = 0; ; looks++) {
      if (came.includes('SEND') && came.includes('RECV')) return looks;
      move(0.001);
      take(b);
      came.push(...take(a));
    }
  };
  return { a, b, trips, waitingTrip };
}

test('a side sends once, its answer with the ACK, and never looks for what cannot be there', async () => {
  const { a, b, trips } = await table();
  expect(trips(7)).toEqual({ sends: 2, filled: 2, empty: 0, packets: 4 });
  await a.device.close();
  await b.device.close();
});

test('a timer that was set anew since is no reason to look', async () => {
  const { a, b, trips } = await table();
  expect(trips(200, 40)).toEqual({ sends: 2, filled: 2, empty: 0, packets: 4 });
  await a.device.close();
  await b.device.close();
});

test('once the program has answered often and soon, ACKs leave with every third answer', async () => {
  const { a, b, trips } = await table();
  trips(80, 9);
  const { packets, ...calls } = trips(300, 9);
  expect(calls).toEqual({ sends: 2, filled: 2, empty: 0 });
  expect(packets).toBeCloseTo(2 + 2 / 4, 1);
  await a.device.close();
  await b.device.close();
});

test('an ACK that waits leaves after 20 µs of polling in vain; where the peer waits for it, hardly ever again', async () => {
  const { a, b, trips, waitingTrip } = await table();
  trips(80, 9);
  const waits = Array.from({ length: 1000 }, waitingTrip);
  // An ACK that comes behind the answer is taken by the look after that.
  const inVain = waits.filter((looks) => looks > 1);
  expect(Math.max(...inVain)).toBeLessThanOrEqual(21);
  expect(inVain.length).toBeGreaterThanOrEqual(1);
  expect(inVain.length).toBeLessThanOrEqual(7);
  await a.device.close();
  await b.device.close();
});

test('towards a peer that may mind, no ACK waits', async () => {
  const { a, b, trips, waitingTrip } = await table(false);
  trips(80, 9);
  // Those of `a` wait, which knows of `b`; each message of `b` is acknowledged with the next one.
  expect(trips(300, 9).packets).toBeCloseTo(3 + 1 / 4, 1);
  expect(Math.max(...Array.from({ length: 200 }, waitingTrip))).toBeLessThanOrEqual(1);
  await a.device.close();
  await b.device.close();
});

test.each([
  ['a turn of the loop', () => turns(2)],
  ['the end of the queue pair', ({ qp }: Side) => qp.modify({ qpState: 'RESET' })],
  ['the end of the device', ({ device }: Side) => device.close()],
])('an ACK that waits leaves with %s', async (_, end) => {
  for (let more = 0; more < 4; more++) {
    const { a, b, trips } = await table();
    trips(80 + more, 9);
    expect(a.qp.sendPending).toBeGreaterThan(0);
    await end(b);
    a.cq.poll();
    expect(a.qp.sendPending).toBe(0);
    await a.device.close();
    await b.device.close();
  }
});
