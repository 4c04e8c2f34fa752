import type { Link } from '@node-roce/link';
import {
  type Adapter,
  createRing,
  Posted,
  type PostedCode,
  Ring,
  type RxBatch,
  TX_SLOT_WORDS,
  Tx,
  type TxBatch,
  Waiting,
  type WaitingCode,
} from '@node-roce/transport';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Diagnostics } from '../diagnostics.ts';
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
    /** Packets that the link takes in at once. */
    packets: 1,
    /** Whether the link reports that it received all there was. */
    empties: false,
    /** Packets that the link takes of each batch. */
    room: Number.POSITIVE_INFINITY,
    /** The second number of the pump's times before each receive: 2 where one datagram is enough. */
    wants: [] as number[],
    status: 0,
    deadline: Number.POSITIVE_INFINITY,
    /** The deadline that the link was asked for, µs. */
    wakesIn: Number.POSITIVE_INFINITY,
    onWake: undefined as (() => void) | undefined,
    /** The effect of a completion. */
    completes: undefined as (() => void) | undefined,
  };
  const clock = new Float64Array(1);
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
    clock,
    findDue: () => state.deadline <= clock[0],
    get wantsToSend() {
      return state.toSend > 0;
    },
  } as unknown as Adapter;
  const link = {
    receive: (batch: RxBatch, time: Float64Array) => {
      state.wants.push(time[1]);
      if (state.arrived === 0) return 0;
      state.arrived--;
      batch.count = state.packets;
      if (state.empties) time[1] = 0;
      return state.packets;
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
    setDeadline: (us: number) => {
      state.wakesIn = us;
      calls.push(us === Number.POSITIVE_INFINITY ? 'deadline never' : 'deadline');
    },
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

  test('a turn that sends the answer of a program that polls does not look at the socket; the next one does', () => {
    const { pump, state, take, ring } = stage();
    const polled = new Ring(createRing(16, 1));
    state.completes = () => polled.publish(polled.producer + 1);
    state.arrived = 2;
    expect(pump.turn(polled)).toBe(true);
    polled.release(polled.producer);
    ring.sleep(ring.consumer);
    ringDoorbell(ring, 7, false);
    state.toSend = 1;
    expect(pump.turn(polled)).toBe(true);
    expect(take()).toEqual(['receive', 'transmit', 'send 0-2', 'sent']);
    // The doorbell is there still, as this adapter answers none.
    expect(pump.turn(polled)).toBe(true);
    expect(take()).toEqual(['receive']);
  });

  test('one datagram is enough for a program that polls where the last few packets were what it waited for', () => {
    const { pump, state } = stage();
    const polled = new Ring(createRing(16, 1));
    const brings = () => polled.publish(polled.producer + 1);
    const turn = (packets: number, completes?: () => void, ring?: Ring) => {
      polled.release(polled.producer);
      Object.assign(state, { arrived: 1, packets, completes, wants: [] });
      pump.turn(ring);
      return state.wants;
    };
    expect(turn(2, brings, polled)).toEqual([1]);
    expect(turn(2, brings, polled)).toEqual([2]);
    // The first look alone: what comes then is more than an answer.
    expect(turn(2, undefined, polled)).toEqual([2, 1]);
    expect(turn(8, brings, polled)).toEqual([1]);
    expect(turn(2, brings, polled)).toEqual([1]);
    // One at a time would never show how many wait: now and then, all are taken.
    for (let i = 0; i < 8; i++) expect(turn(1, brings, polled)).toEqual([2]);
    expect(turn(2, brings, polled)).toEqual([1]);
    expect(turn(2, brings, polled)).toEqual([2]);
    // Nobody polls.
    expect(turn(2, brings)).toEqual([1, 1]);
  });

  test('replies to many packets at once do not wait for a program that polls', () => {
    const { pump, state, take } = stage();
    const polled = new Ring(createRing(16, 1));
    state.completes = () => polled.publish(polled.producer + 1);
    state.arrived = 2;
    state.packets = 32;
    state.toSend = 1;
    expect(pump.turn(polled)).toBe(true);
    expect(take()).toEqual(['receive', 'transmit', 'send 0-2', 'sent']);
  });

  test('a program that answers when it is woken runs before anything is sent; one that stops to is heard last', () => {
    vi.useFakeTimers({ toFake: ['setImmediate', 'clearImmediate'] });
    let now = 1;
    vi.spyOn(performance, 'now').mockImplementation(() => now);
    try {
      const { pump, state, take, ring } = stage();
      const polled = new Ring(createRing(16, 1));
      const sends = ['transmit', 'send 0-2', 'sent'];
      /** A packet wakes the program, and draws a reply. */
      const wake = () => {
        state.completes = () => pump.woke();
        state.arrived = 1;
        state.toSend++;
        pump.wake();
        vi.runOnlyPendingTimers();
        state.completes = undefined;
        return take().filter((call) => sends.includes(call) || call === 'receive');
      };
      const answer = () => {
        ringDoorbell(ring, 1, false);
        pump.turn(polled);
        ring.release(ring.producer);
        return take();
      };
      expect(wake()).toEqual(['receive', ...sends]);
      expect(answer()).toEqual([]);
      expect(wake()).toEqual(['receive']);
      expect(answer()).toEqual(sends);
      // It computes for a while.
      expect(wake()).toEqual(['receive']);
      now++;
      expect(answer()).toEqual(sends);
      expect(wake()).toEqual(['receive', ...sends]);
      // It answers at once again, and then not at all.
      answer();
      expect(wake()).toEqual(['receive']);
      expect(wake()).toEqual([...sends, ...sends, 'receive']);
      expect(wake()).toEqual(['receive', ...sends]);
    } finally {
      vi.restoreAllMocks();
      vi.useRealTimers();
    }
  });

  test('a socket that was empty after a few packets is not looked at again, unless a timer is due', () => {
    const { pump, state, take } = stage();
    state.empties = true;
    state.arrived = 2;
    state.toSend = 1;
    expect(pump.turn()).toBe(true);
    expect(take()).toEqual(['receive', 'transmit', 'send 0-2', 'sent']);
    state.deadline = 0;
    state.arrived = 2;
    pump.turn();
    expect(take()).toEqual(['receive', 'receive', 'advance']);
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
        return Posted.NOTHING;
      },
      sleep: () => false,
      yield: () => 0,
      preempt: () => {},
      turned: () => Waiting.NOBODY,
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
        take: () => Posted.NOTHING,
        sleep: () => {
          asked.push(name);
          return name === 'a' && posted-- > 0;
        },
        yield: () => 0,
        preempt: () => {},
        turned: () => Waiting.NOBODY,
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

  /** A pump with one source, in a machine whose clock stands still. */
  function served() {
    const { pump, state, take } = stage();
    const said: string[] = [];
    const source = {
      /** The program, when it has the processor; returns how long it had it, µs. */
      program: () => 3,
      /** Its posts since the last turn. */
      posted: Posted.NOTHING as PostedCode,
      /** After how many turns a thread of it sleeps still. */
      waits: 0,
    };
    const { wake, settle } = pump.attach({
      take: () => {
        const { posted } = source;
        source.posted = Posted.NOTHING;
        return posted;
      },
      sleep: () => false,
      yield: () => {
        said.push('yield');
        return source.program();
      },
      preempt: (on: boolean) => said.push(`preempt ${on}`),
      turned: () => {
        said.push('turned');
        return source.waits-- > 0 ? Waiting.SLEEPING : Waiting.NOBODY;
      },
    });
    return { pump, state, take, source, wake, settle, says: () => said.splice(0) };
  }

  test('yields to programs after each turn; where one keeps the processor, sleeps as soon as nothing is there', () => {
    vi.useFakeTimers({ toFake: ['performance', 'setImmediate', 'clearImmediate'] });
    try {
      const { state, take, source, wake, says } = served();
      wake();
      expect(new Set(says())).toEqual(new Set(['turned', 'yield']));
      expect(take()).not.toContain('watch');
      // 16 ms of 50 are other work of the machine, 20 are a program that does not yield. Each time the rest of the thread has its turn.
      source.program = () => 4000;
      for (let i = 0; i < 4; i++) wake();
      expect(says().filter((said) => said !== 'turned')).toEqual(new Array(4).fill('yield'));
      source.program = () => 3;
      vi.advanceTimersByTime(60);
      says();
      take();
      source.program = () => 20_000;
      wake();
      expect(says()).toEqual(['turned', 'yield', 'preempt true', 'turned']);
      expect(take()).toContain('deadline never');
      // A post, in the turn that takes it.
      state.toSend = 1;
      wake();
      expect(take().slice(0, 3)).toEqual(['transmit', 'send 0-2', 'sent']);
      // A packet: a turn, no yield, and no iteration of the loop in which it polls.
      says();
      state.arrived = 1;
      wake();
      expect(says()).toEqual(['turned']);
      expect(take()).toEqual(['receive', 'deadline never']);
      // While a thread of the program sleeps the processor is free: the pump polls, and needs no wake.
      source.waits = 3;
      wake();
      expect(says()).toEqual(['turned', 'turned', 'turned', 'turned']);
      expect(take()).toEqual(['deadline never']);
      // After a second one yield decides.
      vi.advanceTimersByTime(1100);
      source.program = () => 4000;
      wake();
      expect(says()).toEqual(['turned', 'preempt false', 'yield', 'preempt true', 'turned']);
      vi.advanceTimersByTime(1100);
      source.program = () => 3;
      wake();
      expect(says().slice(0, 5)).toEqual(['turned', 'preempt false', 'yield', 'turned', 'yield']);
    } finally {
      vi.useRealTimers();
    }
  });

  test('a program that answers at once runs before the reply to its peer leaves, and both leave together', () => {
    vi.useFakeTimers({ toFake: ['performance', 'setImmediate', 'clearImmediate'] });
    try {
      const { state, source, wake } = served();
      vi.advanceTimersByTime(10);
      const seen: string[] = [];
      let answers: PostedCode = Posted.SENDS;
      let had = 0;
      source.program = () => {
        if (had > 0) {
          seen.push(`program, ${state.toSend} to send`);
          had--;
          source.posted = answers;
          if (answers === Posted.SENDS) state.toSend++;
        }
        return 3;
      };
      // A message of the peer, which draws a reply.
      state.completes = () => {
        had++;
        state.toSend++;
      };
      const message = () => {
        state.arrived = 1;
        state.empties = true;
        wake();
        return seen.splice(0);
      };
      // Nothing is known about it yet: the reply has left before it runs.
      expect(message()).toEqual(['program, 0 to send']);
      expect(message()).toEqual(['program, 1 to send']);
      expect(state.toSend).toBe(0);
      // It posts no more than a receive: the reply waited in vain, once.
      answers = Posted.RECEIVES;
      expect(message()).toEqual(['program, 1 to send']);
      expect(state.toSend).toBe(0);
      expect(message()).toEqual(['program, 0 to send']);
      // A request that is posted already leaves before the program runs, and the reply with it.
      answers = Posted.SENDS;
      message();
      source.posted = Posted.SENDS;
      expect(message()).toEqual(['program, 0 to send']);
    } finally {
      vi.useRealTimers();
    }
  });

  test('a reply waits 0.1 ms for an answer, after 64 prompt ones 3 ms; a late answer, or none, ends that', () => {
    vi.useFakeTimers({ toFake: ['performance', 'setImmediate', 'clearImmediate'] });
    try {
      const { state, source, wake } = served();
      vi.advanceTimersByTime(1);
      source.program = () => 20_000;
      wake();
      state.completes = () => state.toSend++;
      /** A message of the peer, which draws a reply: when the pump wakes by itself. */
      const message = () => {
        state.arrived = 1;
        state.empties = true;
        wake();
        return state.wakesIn;
      };
      const answer = () => {
        source.posted = Posted.SENDS;
        state.toSend++;
        wake();
        expect(state.toSend).toBe(0);
      };
      const never = Number.POSITIVE_INFINITY;
      const untilSure = () => {
        const waits = [message()];
        for (; waits.at(-1) !== 3000; waits.push(message())) answer();
        return waits;
      };
      expect(untilSure()).toEqual([never, ...new Array(63).fill(100), 3000]);
      // None.
      wake();
      expect([state.toSend, message()]).toEqual([0, never]);
      answer();
      expect(untilSure()).toHaveLength(64);
      vi.advanceTimersByTime(1);
      answer();
      expect(message()).toBe(never);
      answer();
      expect(message()).toBe(100);
    } finally {
      vi.useRealTimers();
    }
  });

  test('does not poll for a program that sleeps where another was woken', () => {
    vi.useFakeTimers({ toFake: ['performance', 'setImmediate', 'clearImmediate'] });
    try {
      const { pump, source, wake, says } = served();
      const other = { is: Waiting.WOKEN as WaitingCode };
      pump.attach({
        ...{ take: () => Posted.NOTHING, sleep: () => false, yield: () => 3, preempt: () => {} },
        turned: () => other.is,
      });
      vi.advanceTimersByTime(1);
      source.program = () => 20_000;
      wake();
      says();
      source.waits = 1000;
      wake();
      expect(says()).toEqual(['turned']);
      // Both sleep, for a while: a round of turns, then the rest of the thread.
      other.is = Waiting.SLEEPING;
      wake();
      expect(says()).toHaveLength(16);
    } finally {
      vi.useRealTimers();
    }
  });

  test('a command of another process sends what was posted before it, and a reply that waits', () => {
    vi.useFakeTimers({ toFake: ['performance', 'setImmediate', 'clearImmediate'] });
    try {
      const { state, source, settle, take } = served();
      take();
      source.posted = Posted.SENDS;
      state.toSend = 1;
      settle();
      expect(take().slice(0, 3)).toEqual(['transmit', 'send 0-2', 'sent']);
      expect(source.posted).toBe(Posted.NOTHING);
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
