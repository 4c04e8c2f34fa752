/** Times of completions: of packets as the link stamps them, and of completions without one. */
import { type Link, LinkWrapper, MemoryNetwork } from '@node-roce/link';
import { RX_SLOT_WORDS, Rx, type RxBatch } from '@node-roce/transport';
import { expect, onTestFinished, test, vi } from 'vitest';
import { openDevice, WorkCompletion, wallClock } from './index.ts';

const now = () => Number(process.hrtime.bigint());

/** Stamps packets 1, 2, … ns after 2^32, once it is asked to. */
class Stamping extends LinkWrapper {
  #next = 0;
  override readonly stampArrivals = () => {
    this.#next = 1;
  };

  get kind(): string {
    return 'stamping';
  }

  override receive(batch: RxBatch, time?: Float64Array): number {
    const count = this.inner.receive(batch, time);
    for (let i = 0; this.#next > 0 && i < batch.count; i++) {
      batch.slots[i * RX_SLOT_WORDS + Rx.STAMP_LOW] = this.#next++;
      batch.slots[i * RX_SLOT_WORDS + Rx.STAMP_HIGH] = 1;
    }
    return count;
  }
}

async function openSide(link: Link) {
  const device = await openDevice({ link });
  onTestFinished(() => device.close());
  const pd = await device.allocPd();
  const plain = await device.createCq(64);
  const timed = await device.createCq(64, { timestamps: true });
  const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(64)));
  return { device, pd, plain, timed, mr };
}

/** Sends complete without times on one side, receives with them on the other. */
async function connected() {
  const network = new MemoryNetwork();
  const linkOf = (n: number) => new Stamping(network.link(`10.0.0.${n}`));
  const [from, to] = [await openSide(linkOf(1)), await openSide(linkOf(2))];
  const sender = await from.pd.createQp({ sendCq: from.timed, recvCq: from.plain });
  const receiver = await to.pd.createQp({ sendCq: to.plain, recvCq: to.timed });
  await sender.connect(receiver.connectionData());
  await receiver.connect(sender.connectionData());
  return { from, to, sender, receiver };
}

test('a receive has the time of its last packet, a send that of its ACK', async () => {
  const { from, to, sender, receiver } = await connected();
  expect([from.timed.timestamps, from.plain.timestamps]).toEqual([true, false]);
  for (let i = 1; i <= 2; i++) {
    receiver.postRecv({ sgList: [{ mr: to.mr }] });
    sender.postSend({ opcode: 'SEND', signaled: true, inline: true, sgList: [new Uint8Array(8)] });
    expect([(await to.timed.next()).timestamp, (await from.timed.next()).timestamp]).toEqual([
      2 ** 32 + i,
      2 ** 32 + i,
    ]);
  }
});

test('a completion without a packet has the time at which it was made, and a queue without times has none', async () => {
  const { to, receiver } = await connected();
  const other = await to.pd.createQp({ sendCq: to.plain });
  await other.toInit();
  for (const qp of [receiver, other]) qp.postRecv({ sgList: [{ mr: to.mr }] });
  const before = now();
  for (const qp of [receiver, other]) await qp.modify({ qpState: 'ERR' });
  const wc = new WorkCompletion();
  expect(to.timed.pollInto([wc])).toBe(1);
  expect(wc.status).toBe('WR_FLUSH_ERR');
  // Two clocks are read for it, one after the other.
  expect(wc.timestamp).toBeGreaterThan(before - 1e6);
  expect(wc.timestamp).toBeLessThan(now() + 1e6);
  expect(to.plain.pollInto([wc])).toBe(1);
  expect(wc.timestamp).toBe(0);
});

test('a queue that is resized keeps them', async () => {
  const { to, sender, receiver } = await connected();
  await to.timed.resize(1000);
  receiver.postRecv({ sgList: [{ mr: to.mr }] });
  sender.postSend({ opcode: 'SEND', signaled: true, inline: true, sgList: [new Uint8Array(8)] });
  expect((await to.timed.next()).timestamp).toBe(2 ** 32 + 1);
});

test('wallClock gives the date of a timestamp', () => {
  vi.useFakeTimers({ toFake: ['Date', 'hrtime', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  vi.advanceTimersByTime(5000);
  const [at, shown] = [now(), Date.now()];
  vi.advanceTimersByTime(3000);
  expect(Math.abs(Number(wallClock(at) / 1000n) / 1000 - shown)).toBeLessThanOrEqual(1);
  expect(wallClock(at) - wallClock(at - 1e9)).toBe(1_000_000_000n);
  expect(() => wallClock('1' as never)).toThrow(
    expect.objectContaining({ errno: 'EINVAL', attribute: 'timestamp' }),
  );
});
