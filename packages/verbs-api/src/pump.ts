/**
 * The run loop of one adapter on one link. It owns the clock and the order (docs/run-loop.md):
 *
 * 1. drain the socket, a bounded number of batches;
 * 2. if it is empty, or has not been for a bounded time, look at the timers: a thread that was stalled finds
 *    the ACKs that wait for it before it counts a retry;
 * 3. transmit until there is nothing more, or no room.
 *
 * While there is traffic, it runs from setImmediate; after a short quiet time it sleeps on the link's
 * descriptor, with the next deadline. An adapter with nothing to do takes no CPU.
 */
import type { Link } from '@node-roce/link';
import {
  type Adapter,
  type Clock,
  Posted,
  type PostedCode,
  Ring,
  RxBatch,
  TxBatch,
  Waiting,
  type WaitingCode,
} from '@node-roce/transport';
import { type Diagnostics, Listening } from './diagnostics.ts';

/** Batches received in one turn, so that transmission and the application are not starved. */
const RECEIVE_BATCHES = 8;
/**
 * How long a timer that is due waits for the socket to run dry, µs of taking packets in. By then all has been taken in
 * that the socket held when it became due: an ACK among that is seen before a retry is counted.
 */
const DRAIN_MICROSECONDS = 30_000;
/** How long it waits while turns end early for a program that polls; then turns drain the socket. */
const EARLY_MICROSECONDS = 1_000;
/** The time that a batch of these counts for, µs: a stall of the thread takes no packets in, and small batches are soon many. */
const BATCH_MIN_MICROSECONDS = 750;
const BATCH_MAX_MICROSECONDS = 1_000;
/**
 * Batches sent at once, and µs after which the next has to wait for its turn: until then no ACK is taken in, and a peer in the same
 * thread does not run, while the ACK timers do.
 */
const SEND_BATCHES = 8;
const SEND_MICROSECONDS = 1_000;
/** Packets of a batch: while the peer works on one, the next is made. With 256 of them, two sides of small messages took turns. */
const SEND_SLOTS = 128;
/** Quiet time after which polling ends, µs: a few round trips between two programs on one machine. */
const POLL_MICROSECONDS = 200;

/** With programs in other processes, the turns in a row before the rest of this thread has its turn, and the quiet time, µs. */
const SERVING_TURNS = 16;
const SERVING_MICROSECONDS = 1_000;
/**
 * A yield that took longer, µs, went to a thread that computes and does not yield. Where such yields take so much, µs, of so long, that is a
 * program that watches its memory. Then the pump sleeps as soon as nothing is there: a wake takes the processor from that thread at
 * once. After so long, µs, one yield shows whether the program still does.
 */
const LONG_YIELD_MICROSECONDS = 500;
const LONG_YIELDS_MICROSECONDS = 20_000;
const LONG_YIELDS_WINDOW = 50_000;
const YIELDING_TO_NOBODY_MICROSECONDS = 1_000_000;

/** A program that was woken has its answer ready after no more than this, µs, or what is owed to peers leaves before it is woken. */
const PROMPT_MICROSECONDS = 100;
/**
 * After so many prompt answers in a row, what is owed waits for so long, µs, where the pump sleeps. On a virtual machine a timer that is
 * due before the kernel's next tick (1 to 4 ms) costs as much as sending a packet. The time is far below the ACK delay that adapters
 * report (`localCaAckDelay`).
 */
const SURE_ANSWERS = 64;
const SURE_MICROSECONDS = 3_000;

/** Turns at the end of a device, for its goodbyes. */
const MAX_LAST_TURNS = 32;

/** Monotonic microseconds. */
export const clock = (): number => performance.now() * 1000;

/**
 * The reading of `process.hrtime` when `clock` is 0, ns: that is the clock of completion times, the same in all threads. The largest of some: a
 * thread that loses the processor between the two readings gets a smaller one.
 */
export function clockOrigin(): number {
  const origins = Array.from({ length: 5 }, () => {
    const [seconds, nanoseconds] = process.hrtime();
    return seconds * 1e9 + nanoseconds - performance.now() * 1e6;
  });
  return Math.max(...origins);
}

/** The part that runs next to the adapter: it takes in what the adapter received for it, and has timers of its own. */
export interface Companion {
  run(now: number): void;
  nextDeadline(): number;
  /** The last call: its messages to peers are sent in the last turns. */
  close(now: number): void;
}

/** A source of work: other processes post through memory that they share with this one. */
export interface WorkSource {
  /** Takes over posted requests: called in each turn, and before packets are taken in that came after it. */
  take(): PostedCode;
  /** Asks for a wake (`Attached.wake`) at the next post, and lets nobody wait for a turn. True if something was posted meanwhile: do not sleep. */
  sleep(): boolean;
  /** Lets the processes run that wait for this processor. Returns how long they did, µs. */
  yield(): number;
  /** Whether a wake of this thread comes before a process that computes. */
  preempt(on: boolean): void;
  /**
   * After each turn of the loop, at `now`, µs: wakes threads of the processes that sleep until something has completed, or have slept in
   * vain for some time.
   */
  turned(now: number): WaitingCode;
}

/** A source that is looked at. */
export interface Attached {
  /** Something was posted, and the pump may sleep: a turn now. */
  wake(): void;
  /** Posted requests leave now: a command that ends a connection may follow. */
  settle(): void;
  /** The source is not looked at any more. */
  detach(): void;
}

/**
 * The time of the turn at hand, µs. The link writes it where it can, since V8 allocates each number with a fraction that
 * a function returns; `#tick` does so where it can't, or has not been called. Behind it 0 if the link received all there was.
 */
const time = new Float64Array(new SharedArrayBuffer(16));
const UNKNOWN = 0;
const MORE = 1;
/**
 * A socket that was empty after fewer packets than these is taken to be so still: a look at it costs as much as they did. After
 * more of them, others have come.
 */
const FEW_PACKETS = 8;
/**
 * The ACK of so many packets at once does not wait for the program, except for programs of other processes: the peer's window is half used, and
 * one ACK is little compared with them.
 */
const MANY_PACKETS = 32;
/** The run loop: receive, advance, transmit, then sleep until the next wake. */
export class Pump {
  /** Looked at in each turn, after the adapter. */
  companion: Companion | undefined;
  readonly #adapter: Adapter;
  /** The adapter's: set whenever `time` was. */
  readonly #clock: Clock;
  readonly #link: Link;
  readonly #diagnostics: Diagnostics;
  readonly #doorbells: Ring;
  readonly #rx: RxBatch;
  readonly #tx: TxBatch;
  /** Slots of `#tx` that the link has taken; less than its count while it has no room. */
  #taken = 0;
  #blocked = false;
  #immediate: NodeJS.Immediate | undefined;
  #watched = false;
  #refed = true;
  #closed = false;
  #turning = false;
  #lastTraffic = 0;
  /** The last turn left nothing in the socket. */
  #drained = true;
  /** Until then, µs, nothing is yielded; 0: yields. */
  #sleepsAtOnce = 0;
  /** Time that long yields took since then, µs. */
  #longYields = 0;
  #longSince = 0;
  /** The turn at hand woke the program, which runs when it ends. */
  #woke = false;
  /** When the last turn of the loop woke the program, if it has not answered since; and whether it did the time before, µs. */
  #wokeAt = UNKNOWN;
  #isPrompt = false;
  /** The last turn ended early: what it has to send is still to be looked at. */
  #owing = false;
  /** When the last turn took packets in while a source was there, µs. */
  #cameAt = UNKNOWN;
  /** How often requests of sources came soon after packets, since a reply was owed and none came. */
  #answers = 0;
  /** A source had requests to send in the turn at hand. */
  #posted = false;
  /** Whether the last turn took packets in. */
  #received = false;
  /** How long a timer that is due has waited for the socket to run dry, and the time of the last batch, µs. */
  #waited = 0;
  #lastBatch = 0;
  #watchers: (() => void)[] = [];
  #sources: readonly WorkSource[] = [];
  readonly #onWake = (): void => this.#run();
  readonly #onImmediate = (): void => {
    this.#immediate = undefined;
    this.#run();
  };

  constructor(adapter: Adapter, link: Link, diagnostics: Diagnostics) {
    this.#adapter = adapter;
    this.#clock = adapter.clock;
    this.#link = link;
    this.#diagnostics = diagnostics;
    this.#doorbells = new Ring(adapter.doorbells);
    this.#rx = new RxBatch(undefined, link.slab);
    this.#tx = new TxBatch(adapter.regions, SEND_SLOTS);
    this.#sleep();
  }

  /** Something was posted or changed: run soon. */
  wake(): void {
    if (this.#closed || this.#immediate !== undefined) return;
    // The turn that took a source's requests sends them, and `#serve` looks at what is left: no iteration of the loop for it.
    if (this.#turning && this.#sources.length > 0) return;
    this.#lastTraffic = clock();
    this.#poll();
  }

  /**
   * A completion woke the program in this thread. If it polled with an answer soon after the last one, the turn at hand ends
   * early, and what is owed leaves with the answer.
   */
  woke(): void {
    this.#woke = true;
  }

  /** Looks at a source in each turn from now on. */
  attach(source: WorkSource): Attached {
    this.#sources = [...this.#sources, source];
    this.wake();
    return {
      wake: () => {
        // Not by `wake`: to poll in the next iteration of the loop would cost the time of an iteration.
        if (this.#closed || this.#turning) return;
        this.#tick();
        this.#lastTraffic = time[0];
        this.#run();
      },
      settle: () => this.settle(),
      detach: () => {
        this.#sources = this.#sources.filter((one) => one !== source);
        if (this.#sources.length > 0 || this.#sleepsAtOnce === 0) return;
        this.#sleepsAtOnce = 0;
        source.preempt(false);
      },
    };
  }

  #tick(): void {
    time[0] = performance.now() * 1000;
    this.#clock[0] = time[0];
  }

  /** The link was called, and has written the time if it can. */
  #timed(): void {
    if (time[0] === UNKNOWN) this.#tick();
    else this.#clock[0] = time[0];
  }

  #take(): void {
    const sources = this.#sources;
    for (let i = 0; i < sources.length; i++) if (sources[i].take() === Posted.SENDS) this.#posted = true;
  }

  /**
   * One turn now, for a program that polls in a loop of its own. Does nothing inside of a turn.
   *
   * @param polled the ring that the program waits on: as soon as something is there for it, the turn ends, and
   *   what is owed to peers leaves with the answer, in the next turn; but while a timer is overdue, turns drain
   *   the socket
   * @returns whether packets came or went
   */
  turn(polled?: Ring): boolean {
    if (this.#turning || this.#closed) return false;
    this.#turning = true;
    this.#diagnostics.look();
    try {
      if (this.#wokeAt !== UNKNOWN && polled !== undefined && this.#doorbells.used > 0) {
        this.#tick();
        this.#isPrompt = time[0] - this.#wokeAt <= PROMPT_MICROSECONDS;
        this.#wokeAt = UNKNOWN;
      }
      this.#posted = false;
      this.#take();
      if (this.#cameAt !== UNKNOWN) {
        this.#tick();
        if (this.#posted) {
          if (time[0] - this.#cameAt <= PROMPT_MICROSECONDS) this.#answers++;
          else if (this.#owing) this.#answers = 0;
        }
        this.#cameAt = UNKNOWN;
      }
      if (this.#owing) {
        this.#owing = false;
        this.#tick();
        if (this.#send() && !this.#posted) this.#answers = 0;
      }
      this.#woke = false;
      const drained = this.#receive(polled, this.#waited < EARLY_MICROSECONDS);
      this.#drained = drained;
      if (drained || this.#waited >= DRAIN_MICROSECONDS) {
        this.#waited = 0;
        if (this.#adapter.isDue) this.#adapter.advance();
      }
      if (this.#adapter.usesFrames) this.#adapter.runFrames();
      this.companion?.run(time[0]);
      if (this.#owing) {
        this.#tell();
        return true;
      }
      const sent = this.#send();
      if (this.#received) this.#tell();
      return !drained || sent || this.#received;
    } finally {
      this.#turning = false;
      this.#diagnostics.flush();
    }
  }

  /** Resolves after the next turn that took packets in (memory may have changed), or at the end. */
  progress(): Promise<void> {
    if (this.#closed) return Promise.resolve();
    return new Promise((resolve) => this.#watchers.push(resolve));
  }

  #tell(): void {
    if (this.#watchers.length === 0) return;
    const watchers = this.#watchers;
    this.#watchers = [];
    for (const resolve of watchers) resolve();
  }

  /**
   * Takes packets in, a bounded number of batches; with `early`, ends with the batch that brings the program something. True
   * once the socket is empty.
   */
  #receive(polled: Ring | undefined, early: boolean): boolean {
    this.#received = false;
    for (let i = 0; i < RECEIVE_BATCHES; i++) {
      time[0] = UNKNOWN;
      time[MORE] = 1;
      const count = this.#link.receive(this.#rx, time);
      this.#timed();
      if (count === 0) return true;
      const emptied = time[MORE] === 0 && count < FEW_PACKETS;
      this.#received = true;
      if ((this.#diagnostics.wanted & Listening.PACKET) !== 0) this.#diagnostics.received(this.#rx);
      const now = time[0];
      if (this.#adapter.isDue) {
        const took = Math.max(now - this.#lastBatch, BATCH_MIN_MICROSECONDS);
        this.#waited += Math.min(took, BATCH_MAX_MICROSECONDS);
      }
      this.#lastBatch = now;
      // A packet that answers what was posted is here: what was posted has to be there before it.
      this.#take();
      this.#adapter.receive(this.#rx);
      if (this.#sources.length > 0) this.#cameAt = now;
      if (
        early &&
        ((this.#woke && this.#isPrompt) ||
          (this.#answers > 0 && emptied && !this.#posted) ||
          (polled !== undefined && polled.used > 0))
      ) {
        if (count < MANY_PACKETS || this.#sources.length > 0) this.#owing = true;
        else this.#send();
        return false;
      }
      this.#send();
      // A timer that is due has to know what came meanwhile.
      if (emptied && !this.#adapter.isDue) return true;
    }
    return false;
  }

  /**
   * A command has ended a connection, or may: posts of other processes and the last replies that it owes leave now, as far as the link
   * has room. The program may end right after.
   */
  settle(): void {
    if (this.#turning || this.#closed) return;
    this.#turning = true;
    try {
      this.#sendAll();
    } finally {
      this.#turning = false;
    }
    this.wake();
  }

  #sendAll(): void {
    this.#take();
    this.#owing = false;
    this.#tick();
    this.#send();
  }

  /** At `time`. */
  #send(): boolean {
    const { count } = this.#tx;
    let any = false;
    if (count > 0 && !this.#flush()) return false;
    const end = time[0] + SEND_MICROSECONDS;
    for (let i = 0; i < SEND_BATCHES && time[0] < end && this.#adapter.wantsToSend; i++) {
      if (this.#adapter.transmit(this.#tx) === 0) return any;
      any = true;
      if (!this.#flush()) return any;
    }
    return any;
  }

  /** Gives the batch to the link. False while the link has no room for all of it. */
  #flush(): boolean {
    const tx = this.#tx;
    const from = this.#taken;
    time[0] = UNKNOWN;
    this.#taken = this.#link.send(tx, from, time);
    this.#timed();
    if ((this.#diagnostics.wanted & Listening.PACKET) !== 0) this.#diagnostics.sent(tx, from, this.#taken);
    if (this.#taken < tx.count) {
      if (!this.#blocked) this.#link.wantWrite(true);
      this.#blocked = true;
      return false;
    }
    if (this.#blocked) this.#link.wantWrite(false);
    this.#blocked = false;
    this.#adapter.sent(tx);
    tx.clear();
    this.#taken = 0;
    return true;
  }

  #run(): void {
    if (this.#closed) return;
    if (this.#sources.length > 0) {
      this.#serve(this.#sources[0]);
      return;
    }
    if (this.#wokeAt !== UNKNOWN) this.#isPrompt = false;
    const busy = this.turn();
    this.#wokeAt = this.#woke ? time[0] : UNKNOWN;
    if (busy) this.#lastTraffic = time[0];
    if (
      busy ||
      (this.#adapter.wantsToSend && !this.#blocked) ||
      time[0] - this.#lastTraffic < POLL_MICROSECONDS
    ) {
      this.#poll();
    } else this.#sleep();
  }

  /**
   * Turns for programs in other processes. Such a program may wait for this processor: each turn yields to it. One that yields as well
   * comes back at once. One that does not keeps the processor, and this thread comes before it only by a wake: then turns go on as long as
   * there is something, or a program sleeps and none was woken, and the pump sleeps.
   */
  #serve(source: WorkSource): void {
    for (let i = 0; i < SERVING_TURNS; i++) {
      const busy = this.turn();
      if (this.#closed) return;
      const now = time[0];
      let waiting: WaitingCode = Waiting.NOBODY;
      for (const one of this.#sources) {
        const of = one.turned(now);
        if (of > waiting) waiting = of;
      }
      if (busy) this.#lastTraffic = now;
      const sends = this.#adapter.wantsToSend && !this.#blocked;
      if (now < this.#sleepsAtOnce) {
        // A source that waits in vain is woken: this does not last.
        if (waiting === Waiting.SLEEPING || (!this.#owing && (!this.#drained || sends))) continue;
        this.#sleep();
        return;
      }
      if (this.#sleepsAtOnce > 0) {
        this.#sleepsAtOnce = 0;
        this.#longYields = LONG_YIELDS_MICROSECONDS - LONG_YIELD_MICROSECONDS;
        this.#longSince = now;
        source.preempt(false);
      }
      if (!busy && now - this.#lastTraffic >= SERVING_MICROSECONDS && !sends) {
        this.#sleep();
        return;
      }
      const microseconds = source.yield();
      if (microseconds < LONG_YIELD_MICROSECONDS) continue;
      if (now - this.#longSince > LONG_YIELDS_WINDOW) {
        this.#longYields = 0;
        this.#longSince = now;
      }
      this.#longYields += microseconds;
      // The rest of this thread has waited as well.
      if (this.#longYields < LONG_YIELDS_MICROSECONDS) break;
      this.#sleepsAtOnce = now + microseconds + YIELDING_TO_NOBODY_MICROSECONDS;
      source.preempt(true);
    }
    this.#poll();
  }

  #poll(): void {
    if (this.#watched) {
      this.#watched = false;
      this.#link.unwatch();
    }
    if (this.#immediate !== undefined) return;
    this.#immediate = setImmediate(this.#onImmediate);
    if (!this.#refed) this.#immediate.unref();
  }

  #sleep(): void {
    if (this.#closed) return;
    // A doorbell from now on has to wake this loop; one that just rang is answered.
    let awake = this.#doorbells.sleep(this.#doorbells.consumer);
    for (const source of this.#sources) awake = source.sleep() || awake;
    if (awake) {
      this.#poll();
      return;
    }
    const deadline = Math.min(
      this.#adapter.nextDeadline(),
      this.companion?.nextDeadline() ?? Number.POSITIVE_INFINITY,
    );
    const microseconds = Math.max(0, deadline - clock());
    // Owed replies wait for the program's answer, but not for long.
    const patience = this.#answers >= SURE_ANSWERS ? SURE_MICROSECONDS : PROMPT_MICROSECONDS;
    this.#link.setDeadline(this.#owing ? Math.min(microseconds, patience) : microseconds);
    if (this.#watched) return;
    this.#watched = true;
    this.#link.watch(this.#onWake);
  }

  ref(): void {
    this.#refed = true;
    this.#link.ref();
    this.#immediate?.ref();
  }

  unref(): void {
    this.#refed = false;
    this.#link.unref();
    this.#immediate?.unref();
  }

  /** Takes in and sends waiting packets, once, and stops for good. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.turn();
    if (this.#owing) this.#sendAll();
    if (this.companion) {
      this.companion.close(clock());
      // A turn sends for a bounded time; the companion's messages to many peers take several.
      for (let i = 0; i < MAX_LAST_TURNS && this.#adapter.wantsToSend && !this.#blocked; i++) this.turn();
    }
    this.#closed = true;
    if (this.#immediate) clearImmediate(this.#immediate);
    this.#link.unwatch();
    if (this.#adapter.usesFrames) this.#adapter.closeFrames();
    this.#tell();
    await this.#link.close();
  }
}
