/** Timers are looked at in bounded time, whatever the program polls and however much arrives (docs/run-loop.md). */
import { type Link, MemoryNetwork } from '@node-roce/link';
import { type Adapter, createRing, Ring, type RxBatch } from '@node-roce/transport';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { move, pass, stopClock } from '../testing/clock.ts';
import { openSide, type Side } from '../testing/pair.ts';
import { Diagnostics } from './diagnostics.ts';
import { Pump } from './engine/pump.ts';
import type { QueuePair } from './index.ts';

/** Milliseconds of a busy program's turn, by a clock that nothing else moves. */
const TURN_MS = 0.05;

describe('a program that polls a busy completion queue and never waits', () => {
  /**
   * `a` receives without a pause, and its socket always has more; `start` is called on the way. Returns what completes with this
   * number in the second after that.
   */
  async function busyUntil(wrId: number, start: (pair: Started) => void) {
    stopClock();
    const cap = { maxRecvWr: 256, maxSendWr: 256, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
    const network = new MemoryNetwork();
    const a = await openSide(slow(network), '10.0.0.1', { cqe: 1024, cap });
    const b = await openSide(network, '10.0.0.2', { cqe: 1024, cap });
    await a.qp.connect(b.qp.connectionData());
    await b.qp.connect(a.qp.connectionData());
    const other = await a.pd.createQp({ sendCq: a.cq });
    const peer = await b.pd.createQp({ sendCq: b.cq });
    await other.connect(peer.connectionData(), { timeout: 8, retryCnt: 0, minRnrTimer: 1 });
    await peer.connect(other.connectionData(), { timeout: 8, minRnrTimer: 1 });
    await pass(5);
    const recv = { wrId: 5, sgList: [{ mr: a.mr, length: 64 }] };
    const send = { wrId: 6, opcode: 'SEND' as const, sgList: [{ mr: b.mr, length: 64 }], signaled: true };
    for (let i = 0; i < 200; i++) a.qp.postRecv(recv);
    let out = 0;
    let messages = 0;
    let started = 0;
    let status = 'nothing in a second';
    for (let now = performance.now(), end = now + 5000; now < end; now = performance.now()) {
      move(TURN_MS);
      for (; out < 128; out++) b.qp.postSend(send);
      out -= b.cq.poll(128).filter(({ wrIdNumber }) => wrIdNumber === 6).length;
      if (messages >= 500 && started === 0) {
        started = messages;
        start({ a, b, other, peer });
        end = now + 1000;
      }
      const polled = a.cq.poll(16);
      const found = polled.find(({ wrIdNumber }) => wrIdNumber === wrId);
      if (found) {
        status = found.status;
        break;
      }
      for (const _ of polled) {
        messages++;
        a.qp.postRecv(recv);
      }
    }
    await a.device.close();
    await b.device.close();
    return { status, started };
  }
  interface Started {
    a: Side;
    b: Side;
    other: QueuePair;
    peer: QueuePair;
  }
  /** Gives four packets a call: a backlog, as at a receiver that is as busy as it can be. */
  const slow = (network: MemoryNetwork) =>
    ({
      link(name: string, mtu: number) {
        const link = network.link(name, mtu);
        const receive = link.receive.bind(link);
        return Object.assign(link, {
          receive: (batch: { capacity: number }) => {
            const { capacity } = batch;
            batch.capacity = 4;
            const count = receive(batch as RxBatch);
            batch.capacity = capacity;
            return count;
          },
        });
      },
    }) as unknown as MemoryNetwork;

  test('hears of the retry timer of another queue pair', async () => {
    const { status, started } = await busyUntil(77, ({ a, other, peer }) => {
      void peer.modify({ qpState: 'ERR' });
      const remote = { addr: 0n, rkey: 0 };
      const sgList = [{ mr: a.mr, length: 8 }];
      other.postSend({ wrId: 77, opcode: 'RDMA_WRITE', sgList, remote, signaled: true });
    });
    expect(started).toBeGreaterThan(0);
    expect(status).toBe('RETRY_EXC_ERR');
  });

  test('hears of a SEND that had to wait for an RNR timer', async () => {
    const { status, started } = await busyUntil(77, ({ a, b, other, peer }) => {
      other.postSend({ wrId: 77, opcode: 'SEND', sgList: [{ mr: a.mr, length: 8 }], signaled: true });
      a.cq.poll();
      b.cq.poll();
      for (let i = 0; i < 2; i++) peer.postRecv({ wrId: 1, sgList: [{ mr: b.mr, length: 64 }] });
    });
    expect(started).toBeGreaterThan(0);
    expect(status).toBe('SUCCESS');
  });
});

describe('a socket that is never empty', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setImmediate', 'clearImmediate', 'performance'] });
  });
  afterEach(() => vi.useRealTimers());

  /** The longest time between two looks at the timers, ms, while each batch takes a millisecond to take in. */
  function longestGap(polls: boolean): number {
    const polled = new Polled();
    const looks: number[] = [];
    const adapter = {
      doorbells: createRing(16, 1),
      regions: { views: [], shared: new Uint8Array(1) },
      receive: () => {
        vi.advanceTimersByTime(1);
        if (polls) polled.fill();
      },
      advance: () => looks.push(performance.now()),
      transmit: () => 0,
      sent: () => {},
      nextDeadline: () => 0,
      clock: new Float64Array(1),
      findDue: () => true,
      wantsToSend: false,
    } as unknown as Adapter;
    const nothing = () => {};
    const link = {
      receive: (batch: RxBatch) => {
        batch.count = 1;
        return 1;
      },
      watch: nothing,
      unwatch: nothing,
      setDeadline: nothing,
      wantWrite: nothing,
      ref: nothing,
      unref: nothing,
      close: async () => {},
    } as unknown as Link;
    const diagnostics = new Diagnostics(() => 0, nothing);
    const pump = new Pump(adapter, link, diagnostics);
    const began = performance.now();
    while (performance.now() < began + 5000) {
      pump.turn(polls ? polled.ring : undefined);
      polled.empty();
    }
    const times = [began, ...looks, performance.now()];
    return Math.max(...times.slice(1).map((time, i) => time - times[i]));
  }

  test.each([false, true])('holds the timers up for 50 ms at most (the program polls: %s)', (polls) => {
    expect(longestGap(polls)).toBeLessThanOrEqual(50);
  });
});

/** A completion queue that has something after each batch. */
class Polled {
  readonly ring = new Ring(createRing(16, 1));
  fill(): void {
    this.ring.publish((this.ring.producer + 1) | 0);
  }
  empty(): void {
    this.ring.release(this.ring.producer);
  }
}
