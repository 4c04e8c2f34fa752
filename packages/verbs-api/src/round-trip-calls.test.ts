/** Calls of the link for a round trip of two programs that poll: each is a call of the kernel, which costs more than the engine's work. */
import { MemoryNetwork } from '@node-roce/link';
import type { RxBatch, TxBatch } from '@node-roce/transport';
import { expect, test } from 'vitest';
import { move, stopClock } from '../testing/clock.ts';
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

/** Two sides that answer each other's SENDs, polling. */
async function table() {
  stopClock();
  const { counts, network } = counting();
  const a = await openSide(network, '10.0.0.1');
  const b = await openSide(network, '10.0.0.2');
  await a.qp.connect(b.qp.connectionData());
  await b.qp.connect(a.qp.connectionData());
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
  return { a, b, trips };
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
