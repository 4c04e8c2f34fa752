/** Calls of the link for a round trip of two programs that poll: each is a call of the kernel, which costs more than the engine's work. */
import { MemoryNetwork } from '@node-roce/link';
import type { RxBatch, TxBatch } from '@node-roce/transport';
import { expect, test } from 'vitest';
import { stopClock } from '../testing/clock.ts';
import { openSide, type Side } from '../testing/pair.ts';

/** Links that count. */
function counting() {
  const counts = { sends: 0, filled: 0, empty: 0 };
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
        return send(batch, from);
      },
    });
  };
  return { counts, network: { link } as unknown as MemoryNetwork };
}

test('a side sends once, its answer with the ACK, and never looks for what cannot be there', async () => {
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
  const pass = (from: Side, to: Side) => {
    from.qp.postSend({ opcode: 'SEND', sgList: [{ mr: from.mr, length: 64 }], signaled: false });
    expect(take(from)).toEqual([]);
    receive(from);
    expect(take(to)).toEqual(['RECV']);
  };
  // The first message is answered without a look; its ACK is the last that leaves alone.
  pass(a, b);
  const before = { ...counts };
  const trips = 50;
  for (let i = 0; i < trips; i++) {
    pass(b, a);
    pass(a, b);
  }
  const { sends, filled, empty } = counts;
  expect({
    sends: sends - before.sends,
    filled: filled - before.filled,
    empty: empty - before.empty,
  }).toEqual({ sends: 2 * trips, filled: 2 * trips, empty: 0 });
  await a.device.close();
  await b.device.close();
});
