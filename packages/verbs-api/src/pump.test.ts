import type { Link } from '@node-roce/link';
import {
  type Adapter,
  createRing,
  Ring,
  type RxBatch,
  TX_SLOT_WORDS,
  Tx,
  type TxBatch,
} from '@node-roce/transport';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Diagnostics } from './diagnostics.ts';
import { ringDoorbell } from './engine.ts';
import { Pump } from './pump.ts';

/** An adapter and a link that record calls, and do as they are instructed. */
function stage() {
  const calls: string[] = [];
  const doorbells = createRing(16, 1);
  const state = {
    /** Batches of packets that wait in the socket. */
    arrived: 0,
    /** Batches that the adapter has to send. */
    toSend: 0,
    /** Packets that the link takes of each batch. */
    room: Number.POSITIVE_INFINITY,
    status: 0,
    deadline: Number.POSITIVE_INFINITY,
    onWake: undefined as (() => void) | undefined,
    /** The effect of a completion. */
    completes: undefined as (() => void) | undefined,
  };
  const adapter = {
    doorbells,
    regions: { views: [], shared: new Uint8Array(1) },
    receive: () => {
      calls.push('receive');
      if (state.completes) state.completes();
    },
    advance: () => calls.push('advance'),
    transmit: (batch: TxBatch) => {
      if (state.toSend === 0) return 0;
      state.toSend--;
      batch.count = 2;
      batch.slots[Tx.STATUS] = state.status;
      batch.slots[TX_SLOT_WORDS + Tx.STATUS] = 0;
      calls.push('transmit');
      return 2;
    },
    sent: () => calls.push('sent'),
    nextDeadline: () => state.deadline,
    get wantsToSend() {
      return state.toSend > 0;
    },
  } as unknown as Adapter;
  const link = {
    receive: (batch: RxBatch) => {
      if (state.arrived === 0) return 0;
      state.arrived--;
      batch.count = 1;
      return 1;
    },
    send: (batch: TxBatch, from: number) => {
      const to = Math.min(batch.count, from + state.room);
      calls.push(`send ${from}-${to}`);
      return to;
    },
    watch: (onWake: () => void) => {
      state.onWake = onWake;
      calls.push('watch');
    },
    unwatch: () => {
      state.onWake = undefined;
      calls.push('unwatch');
    },
    setDeadline: (us: number) => calls.push(us === Number.POSITIVE_INFINITY ? 'deadline never' : 'deadline'),
    wantWrite: (on: boolean) => calls.push(`wantWrite ${on}`),
    ref: () => {},
    unref: () => {},
    close: async () => {
      calls.push('close');
    },
  } as unknown as Link;
  const pump = new Pump(
    adapter,
    link,
    new Diagnostics(
      () => 0,
      () => {},
    ),
  );
  const take = () => calls.splice(0);
  take();
  return { pump, state, take, ring: new Ring(doorbells) };
}

describe('a turn', () => {
  test('drains the socket, then runs the timers that are due, then sends', () => {
    const { pump, state, take } = stage();
    state.deadline = 0;
    state.arrived = 2;
    expect(pump.turn()).toBe(true);
    state.toSend = 1;
    pump.turn();
    expect(take()).toEqual(['receive', 'receive', 'advance', 'advance', 'transmit', 'send 0-2', 'sent']);
  });

  test('answers a batch before it takes in the next one', () => {
    const { pump, state, take } = stage();
    state.arrived = 2;
    state.toSend = 1;
    pump.turn();
    expect(take()).toEqual(['receive', 'transmit', 'send 0-2', 'sent', 'receive']);
  });

  test('a program that polls has its completions before anything is sent; that leaves with its answer', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const { pump, state, take } = stage();
    const polled = new Ring(createRing(16, 1));
    state.completes = () => polled.publish(polled.producer + 1);
    state.arrived = 2;
    state.toSend = 1;
    expect(pump.turn(polled)).toBe(true);
    expect(take()).toEqual(['receive']);
    pump.turn(polled);
    expect(take()).toEqual(['transmit', 'send 0-2', 'sent', 'receive']);
    // Without anything to poll, a turn is as any other.
    polled.release(polled.producer);
    state.completes = undefined;
    state.arrived = 1;
    pump.turn(polled);
    expect(take()).toEqual(['receive']);
    vi.useRealTimers();
  });

  test('a timer that is due waits 30 ms for the socket to run dry, not longer', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      const { pump, state, take } = stage();
      state.arrived = Number.POSITIVE_INFINITY;
      // Eight batches a turn, of a millisecond each.
      state.completes = () => vi.advanceTimersByTime(1);
      const looks = (turns: number) => {
        for (let i = 0; i < turns; i++) pump.turn();
        return take().filter((call) => call === 'advance').length;
      };
      expect(looks(100)).toBe(0);
      state.deadline = 0;
      expect(looks(3)).toBe(0);
      expect(looks(1)).toBe(1);
      expect(looks(3)).toBe(0);
      expect(looks(1)).toBe(1);
      // A stall takes nothing in: it counts as one batch.
      vi.advanceTimersByTime(1000);
      expect(looks(3)).toBe(0);
      expect(looks(1)).toBe(1);
    } finally {
      vi.useRealTimers();
    }
  });

  test('turns end early for a program that polls, until a timer is overdue by a millisecond', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      const { pump, state, take } = stage();
      const polled = new Ring(createRing(16, 1));
      state.completes = () => polled.publish(polled.producer + 1);
      state.arrived = 4;
      vi.advanceTimersByTime(0.75);
      state.deadline = 0;
      pump.turn(polled);
      pump.turn(polled);
      expect(take()).toEqual(['receive', 'receive']);
      pump.turn(polled);
      expect(take()).toEqual(['receive', 'receive', 'advance']);
    } finally {
      vi.useRealTimers();
    }
  });

  test('a command that ended a connection sends at once, and the loop wakes for packets without room', async () => {
    const { pump, state, take } = stage();
    state.toSend = 1;
    pump.settle();
    expect(take()).toEqual(['transmit', 'send 0-2', 'sent', 'unwatch']);
    await pump.close();
    pump.settle();
    expect(take()).not.toContain('transmit');
  });

  test('takes requests of other processes before each batch that may answer them', () => {
    const { pump, state, take } = stage();
    const calls = take();
    const source = {
      take: () => {
        calls.push('take');
        return true;
      },
      sleep: () => false,
    };
    const { detach } = pump.attach(source);
    state.completes = () => calls.push('receive');
    state.arrived = 2;
    pump.turn();
    expect(calls).toEqual(['take', 'take', 'receive', 'take', 'receive']);
    calls.splice(0);
    detach();
    state.arrived = 1;
    pump.turn();
    expect(calls).toEqual(['receive']);
  });

  test('sleeps only once every source has asked for a wake and has nothing', async () => {
    vi.useFakeTimers({ toFake: ['performance', 'setImmediate'] });
    try {
      const { pump, take } = stage();
      let posted = 1;
      const asked: string[] = [];
      const sources = ['a', 'b'].map((name) => ({
        take: () => {},
        sleep: () => {
          asked.push(name);
          return name === 'a' && posted-- > 0;
        },
      }));
      const attached = sources.map((source) => pump.attach(source));
      vi.advanceTimersByTime(1);
      expect(asked).toEqual(['a', 'b']);
      expect(take()).not.toContain('watch');
      vi.advanceTimersByTime(1);
      expect(asked).toEqual(['a', 'b', 'a', 'b']);
      expect(take()).toContain('watch');
      attached[1].wake();
      expect(take()).toEqual(['unwatch']);
    } finally {
      vi.useRealTimers();
    }
  });

  test('nothing to do: false', () => {
    const { pump, take } = stage();
    expect(pump.turn()).toBe(false);
    expect(take()).toEqual([]);
  });

  test('a link without room is asked for later, from where it stopped', () => {
    const { pump, state, take } = stage();
    state.toSend = 2;
    state.room = 1;
    pump.turn();
    expect(take()).toEqual(['transmit', 'send 0-1', 'wantWrite true']);
    state.room = 0;
    pump.turn();
    expect(take()).toEqual(['send 1-1']);
    state.room = 2;
    pump.turn();
    expect(take()).toEqual(['send 1-2', 'wantWrite false', 'sent', 'transmit', 'send 0-2', 'sent']);
  });

  test('the adapter hears of each batch once the link has looked at all of it', () => {
    const { pump, state, take } = stage();
    state.toSend = 1;
    state.room = 1;
    pump.turn();
    expect(take()).not.toContain('sent');
    state.room = 2;
    pump.turn();
    expect(take().filter((call) => call === 'sent')).toHaveLength(1);
  });
});

describe('between turns', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setImmediate', 'clearImmediate', 'performance'] });
  });
  afterEach(() => vi.useRealTimers());

  test('an idle pump watches the link, with no deadline, and does nothing', async () => {
    const { state, take } = stage();
    await vi.advanceTimersByTimeAsync(1000);
    expect(take()).toEqual([]);
    expect(state.onWake).toBeTypeOf('function');
  });

  test('a doorbell on a sleeping pump wakes it; it polls for a while, then sleeps again', async () => {
    const { pump, state, take, ring } = stage();
    expect(ringDoorbell(ring, 5, false)).toBe(true);
    expect(ringDoorbell(ring, 5, false)).toBe(false);
    pump.wake();
    state.toSend = 1;
    expect(take()).toEqual(['unwatch']);
    await vi.advanceTimersByTimeAsync(0);
    expect(take().slice(0, 3)).toEqual(['transmit', 'send 0-2', 'sent']);
    ring.release(ring.producer);
    state.deadline = 5_000_000;
    for (let i = 0; i < 20; i++) await vi.advanceTimersByTimeAsync(1);
    expect(take().slice(-2)).toEqual(['deadline', 'watch']);
    await vi.advanceTimersByTimeAsync(100);
    expect(take()).toEqual([]);
    expect(ringDoorbell(ring, 5, false)).toBe(true);
  });

  test('a packet on an idle link leads to polling, without a new watch for each', async () => {
    const { state, take } = stage();
    state.arrived = 1;
    state.onWake?.();
    expect(take()).toEqual(['receive', 'unwatch']);
    await vi.advanceTimersByTimeAsync(0);
    expect(take()).toEqual([]);
  });

  test('progress resolves for packets, and for the end', async () => {
    const { pump, state } = stage();
    const told: string[] = [];
    pump.progress().then(() => told.push('first'));
    pump.turn();
    await vi.advanceTimersByTimeAsync(0);
    expect(told).toEqual([]);
    state.arrived = 1;
    pump.turn();
    await vi.advanceTimersByTimeAsync(0);
    expect(told).toEqual(['first']);
    pump.progress().then(() => told.push('second'));
    await pump.close();
    await pump.progress();
    expect(told).toEqual(['first', 'second']);
  });

  test('closing sends waiting packets, closes the link, and ends the loop', async () => {
    const { pump, state, take } = stage();
    state.toSend = 1;
    await pump.close();
    await pump.close();
    expect(take()).toEqual(['transmit', 'send 0-2', 'sent', 'unwatch', 'close']);
    pump.wake();
    expect(pump.turn()).toBe(false);
    await vi.advanceTimersByTimeAsync(10);
    expect(take()).toEqual([]);
  });
});
