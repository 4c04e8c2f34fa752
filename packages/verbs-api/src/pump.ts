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
import { type Adapter, Ring, RxBatch, TxBatch } from '@node-roce/transport';
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

/** Turns at the end of a device, for its goodbyes. */
const MAX_LAST_TURNS = 32;

/** Monotonic microseconds. */
export const clock = (): number => performance.now() * 1000;

/** The reading of `process.hrtime` when `clock` is 0, ns: that is the clock of completion times, the same in all threads. */
export function clockOrigin(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e9 + nanoseconds - performance.now() * 1e6;
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
  take(): unknown;
  /** Asks for a wake (`Attached.wake`) at the next post. True if something was posted meanwhile: do not sleep. */
  sleep(): boolean;
}

/** A source that is looked at. */
export interface Attached {
  /** Something was posted, and the pump may sleep. */
  wake(): void;
  /** The source is not looked at any more. */
  detach(): void;
}

/**
 * The time of the turn at hand, µs. The link writes it where it can, since V8 allocates each number with a fraction that
 * a function returns; `tick` does so where it can't, or has not been called.
 */
const time = new Float64Array(new SharedArrayBuffer(8));
const UNKNOWN = 0;
function tick(): void {
  time[0] = performance.now() * 1000;
}

/** The run loop: receive, advance, transmit, then sleep until the next wake. */
export class Pump {
  /** Looked at in each turn, after the adapter. */
  companion: Companion | undefined;
  readonly #adapter: Adapter;
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
  /** The last turn ended early: what it has to send is still to be looked at. */
  #owing = false;
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
    this.#lastTraffic = clock();
    this.#poll();
  }

  /** Looks at a source in each turn from now on. */
  attach(source: WorkSource): Attached {
    this.#sources = [...this.#sources, source];
    this.wake();
    return {
      wake: () => this.wake(),
      detach: () => {
        this.#sources = this.#sources.filter((one) => one !== source);
      },
    };
  }

  #take(): void {
    const sources = this.#sources;
    for (let i = 0; i < sources.length; i++) sources[i].take();
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
      if (this.#owing) {
        this.#owing = false;
        tick();
        this.#send();
      }
      this.#take();
      const drained = this.#receive(this.#waited < EARLY_MICROSECONDS ? polled : undefined);
      if (drained || this.#waited >= DRAIN_MICROSECONDS) {
        this.#waited = 0;
        if (this.#adapter.nextDeadline() <= time[0]) this.#adapter.advance(time[0]);
      }
      if (this.#adapter.usesFrames) this.#adapter.runFrames(time[0]);
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

  /** Takes packets in, a bounded number of batches. True once the socket is empty. */
  #receive(polled: Ring | undefined): boolean {
    this.#received = false;
    for (let i = 0; i < RECEIVE_BATCHES; i++) {
      time[0] = UNKNOWN;
      const count = this.#link.receive(this.#rx, time);
      if (time[0] === UNKNOWN) tick();
      if (count === 0) return true;
      this.#received = true;
      if ((this.#diagnostics.wanted & Listening.PACKET) !== 0) this.#diagnostics.received(this.#rx);
      const now = time[0];
      if (this.#adapter.nextDeadline() <= now) {
        const took = Math.max(now - this.#lastBatch, BATCH_MIN_MICROSECONDS);
        this.#waited += Math.min(took, BATCH_MAX_MICROSECONDS);
      }
      this.#lastBatch = now;
      // A packet that answers what was posted is here: what was posted has to be there before it.
      this.#take();
      this.#adapter.receive(this.#rx, now);
      if (polled !== undefined && polled.used > 0) {
        this.#owing = true;
        return false;
      }
      this.#send();
    }
    return false;
  }

  /**
   * A command has ended a connection: the last replies that it owes leave now, as far as the link has room. The
   * program may end right after.
   */
  settle(): void {
    if (this.#turning || this.#closed) return;
    this.#turning = true;
    tick();
    try {
      this.#send();
    } finally {
      this.#turning = false;
    }
    this.wake();
  }

  /** At `time`. */
  #send(): boolean {
    const { count } = this.#tx;
    let any = false;
    if (count > 0 && !this.#flush()) return false;
    const end = time[0] + SEND_MICROSECONDS;
    for (let i = 0; i < SEND_BATCHES && time[0] < end && this.#adapter.wantsToSend; i++) {
      if (this.#adapter.transmit(this.#tx, time[0]) === 0) return any;
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
    if (time[0] === UNKNOWN) tick();
    if ((this.#diagnostics.wanted & Listening.PACKET) !== 0) this.#diagnostics.sent(tx, from, this.#taken);
    if (this.#taken < tx.count) {
      if (!this.#blocked) this.#link.wantWrite(true);
      this.#blocked = true;
      return false;
    }
    if (this.#blocked) this.#link.wantWrite(false);
    this.#blocked = false;
    this.#adapter.sent(tx, time[0]);
    tx.clear();
    this.#taken = 0;
    return true;
  }

  #run(): void {
    if (this.#closed) return;
    const busy = this.turn();
    if (busy) this.#lastTraffic = time[0];
    if (
      busy ||
      (this.#adapter.wantsToSend && !this.#blocked) ||
      time[0] - this.#lastTraffic < POLL_MICROSECONDS
    ) {
      this.#poll();
    } else this.#sleep();
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
    this.#link.setDeadline(Math.max(0, deadline - clock()));
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
