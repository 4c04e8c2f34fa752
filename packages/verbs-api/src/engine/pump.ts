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
import { type Adapter, type Clock, Ring, RxBatch, TxBatch, unfoldRuns } from '@node-roce/transport';
import { type Diagnostics, Listening } from '../diagnostics.ts';
import { clock, UNKNOWN } from './clock.ts';
import { NextRun } from './next-run.ts';
import { Patience } from './patience.ts';
import { type Attached, Next, Serving, type WorkSource } from './serving.ts';

/** Batches received in one turn: transmission and the program are not starved. */
const RECEIVE_BATCHES = 8;
/**
 * How long a timer that is due waits for the socket to run dry, µs of taking packets in. By then all has been taken in
 * that the socket held when it became due: an ACK among that is seen before a retry is counted.
 */
const DRAIN_MICROSECONDS = 30_000;
/** How long it waits while turns end early for a program that polls; then turns drain the socket. */
const EARLY_MICROSECONDS = 1_000;
/** Bounds on the time charged per batch, µs: a stalled thread receives nothing, and small batches would add up too fast. */
const BATCH_MIN_MICROSECONDS = 750;
const BATCH_MAX_MICROSECONDS = 1_000;
/** Batches sent at once, and µs after which the next waits for its turn: until then ACK timers run, but no ACK is taken in. */
const SEND_BATCHES = 8;
const SEND_MICROSECONDS = 1_000;
/** Packets of a batch: while the peer works on one, the next is made. With 256 of them, two sides of small messages took turns. */
const SEND_SLOTS = 128;
/** Quiet time after which polling ends, µs: a few round trips between two programs on one machine. */
const POLL_MICROSECONDS = 200;

/** With programs in other processes: the turns in a row before the rest of this thread has its turn; the quiet time, µs. */
const SERVING_TURNS = 16;
const SERVING_MICROSECONDS = 1_000;
/** Turns at the end of a device, for its goodbyes. */
const MAX_LAST_TURNS = 32;

/** The part that runs next to the adapter: it takes in what the adapter received for it, and has timers of its own. */
export interface Companion {
  run(now: number): void;
  nextDeadline(): number;
  /** The last call: its messages to peers are sent in the last turns. */
  close(now: number): void;
}

/** A socket that was empty after fewer packets is taken to be so still: a look costs as much as they did. After more, others have come. */
const FEW_PACKETS = 8;
/** The ACK of so many packets does not wait for the program, but for those of other processes: the peer's window is half used. */
const MANY_PACKETS = 32;

/** Index behind the time of the turn: 0 if the link received all there was. Before a receive `ONE`, where one datagram is enough. */
const MORE = 1;
const ONE = 2;
/** Looks for one datagram in a row, which do not show how many more wait. */
const BRIEF_LOOKS = 8;

/** The run loop: receive, advance, transmit, then sleep until the next wake. */
export class Pump {
  /** Looked at in each turn, after the adapter. */
  companion: Companion | undefined;
  readonly #adapter: Adapter;
  /**
   * The time of the turn at hand, µs. The link writes it where it can, since V8 allocates each number with a fraction that
   * a function returns; `#tick` does so where it can't, or has not been called.
   */
  readonly #time = new Float64Array(new SharedArrayBuffer(16));
  /** The adapter's: set whenever `#time` was. */
  readonly #clock: Clock;
  /** When what is owed may wait. */
  readonly #patience = new Patience(this.#time);
  /** The turn at hand woke the program, which runs when it ends. */
  #woke = false;
  /** Programs in other processes, from the first on. */
  #serving: Serving | undefined;
  readonly #link: Link;
  readonly #diagnostics: Diagnostics;
  readonly #doorbells: Ring;
  readonly #rx: RxBatch;
  readonly #tx: TxBatch;
  /** Slots of `#tx` that the link has taken; less than its count while it has no room. */
  #taken = 0;
  #blocked = false;
  readonly #next: NextRun;
  #closed = false;
  #turning = false;
  #lastTraffic = 0;
  /** The last turn left nothing in the socket. */
  #drained = true;
  /** Whether the last turn took packets in. */
  #received = false;
  /** Looks that may ask for one datagram: the last packets were few, and what a program that polls was waiting for. */
  #brief = 0;
  /** How long a timer that is due has waited for the socket to run dry, and the time of the last batch, µs. */
  #waited = 0;
  #lastBatch = 0;
  #watchers: (() => void)[] = [];

  constructor(adapter: Adapter, link: Link, diagnostics: Diagnostics) {
    this.#adapter = adapter;
    this.#clock = adapter.clock;
    this.#link = link;
    this.#next = new NextRun(link, () => this.#run());
    this.#diagnostics = diagnostics;
    this.#doorbells = new Ring(adapter.doorbells);
    this.#rx = new RxBatch(undefined, link.slab);
    this.#tx = new TxBatch(adapter.regions, SEND_SLOTS);
    this.#tx.runs = link.takesRuns ?? false;
    this.#sleep();
  }

  /** Something was posted or changed: run soon. */
  wake(): void {
    if (this.#closed || this.#next.isSoon) return;
    // The turn that took a source's requests sends them, and `#serve` looks at what is left: no iteration of the loop for it.
    if (this.#turning && this.#serving?.active) return;
    this.#lastTraffic = clock();
    this.#next.soon();
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
    this.#serving ??= new Serving(this.#time);
    const serving = this.#serving;
    serving.add(source);
    this.wake();
    return {
      wake: () => {
        // Not by `wake`: to poll in the next iteration of the loop would cost the time of an iteration.
        if (this.#closed || this.#turning) return;
        this.#tick();
        this.#lastTraffic = this.#time[0];
        this.#run();
      },
      settle: () => this.settle(),
      detach: () => serving.remove(source),
    };
  }

  #tick(): void {
    this.#time[0] = performance.now() * 1000;
    this.#clock[0] = this.#time[0];
  }

  /** The link was called, and has written the time if it can. */
  #timed(): void {
    if (this.#time[0] === UNKNOWN) this.#tick();
    else this.#clock[0] = this.#time[0];
  }

  #take(): void {
    if (this.#serving?.take()) this.#patience.posted = true;
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
      // Nothing can have come back for the answer yet: the next turn looks.
      if (this.#payOwed(polled)) return true;
      const drained = this.#receive(polled, this.#waited < EARLY_MICROSECONDS);
      this.#drained = drained;
      if (drained || this.#waited >= DRAIN_MICROSECONDS) {
        this.#waited = 0;
        if (this.#adapter.findDue()) this.#adapter.advance();
      }
      if (this.#adapter.usesFrames) this.#adapter.runFrames();
      this.companion?.run(this.#time[0]);
      if (this.#patience.owing) {
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

  /** The same for a program that polls this ring; the loop hears of the traffic, which moves deadlines. */
  readonly poll = (polled: Ring): void => {
    if (this.turn(polled)) this.wake();
  };

  /** Looks at what the programs have posted since the last turn, and sends what that one owed. True if a program that polls has answered. */
  #payOwed(polled: Ring | undefined): boolean {
    const patience = this.#patience;
    const answers = polled !== undefined && this.#doorbells.used > 0;
    if (patience.awaitsProgram && answers) {
      this.#tick();
      patience.answered();
    }
    patience.posted = false;
    this.#take();
    if (patience.awaitsSources) {
      this.#tick();
      patience.looked();
    }
    const { owing } = patience;
    if (owing) {
      patience.owing = false;
      this.#tick();
      if (this.#send() && !patience.posted) patience.paidAlone();
    }
    this.#woke = false;
    return owing && answers;
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
    const time = this.#time;
    this.#received = false;
    for (let i = 0; i < RECEIVE_BATCHES; i++) {
      time[0] = UNKNOWN;
      const one = early && this.#brief > 0 && polled !== undefined && i === 0;
      time[MORE] = one ? ONE : 1;
      const count = this.#link.receive(this.#rx, time);
      this.#timed();
      if (count === 0) return true;
      const emptied = time[MORE] === 0 && count < FEW_PACKETS;
      this.#received = true;
      if ((this.#diagnostics.wanted & Listening.PACKET) !== 0) this.#diagnostics.received(this.#rx);
      const now = time[0];
      if (this.#adapter.findDue()) {
        const took = Math.max(now - this.#lastBatch, BATCH_MIN_MICROSECONDS);
        this.#waited += Math.min(took, BATCH_MAX_MICROSECONDS);
      }
      this.#lastBatch = now;
      // A packet that answers what was posted is here: what was posted has to be there before it.
      this.#take();
      this.#adapter.receive(this.#rx);
      const active = this.#serving?.active === true;
      if (active) this.#patience.came();
      const hasAnswer = polled !== undefined && polled.used > 0;
      this.#brief = !hasAnswer || count >= FEW_PACKETS ? 0 : one ? this.#brief - 1 : BRIEF_LOOKS;
      if (early && (hasAnswer || this.#patience.waits(this.#woke, emptied))) {
        if (count < MANY_PACKETS || active) this.#patience.owing = true;
        else this.#send();
        return false;
      }
      this.#send();
      // A timer that is due has to know what came meanwhile.
      if (emptied && !this.#adapter.findDue()) return true;
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
    this.#patience.owing = false;
    this.#tick();
    this.#send();
  }

  /** At the time of the turn. */
  #send(): boolean {
    const time = this.#time;
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
    this.#time[0] = UNKNOWN;
    this.#taken = this.#link.send(tx, from, this.#time);
    this.#timed();
    if ((this.#diagnostics.wanted & Listening.PACKET) !== 0) {
      unfoldRuns(tx);
      this.#diagnostics.sent(tx, from, this.#taken);
    }
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
    if (this.#serving?.active) {
      this.#serve(this.#serving);
      return;
    }
    const time = this.#time;
    this.#patience.loops();
    const busy = this.turn();
    this.#patience.looped(this.#woke);
    if (busy) this.#lastTraffic = time[0];
    const isQuiet = !busy && time[0] - this.#lastTraffic >= POLL_MICROSECONDS;
    if (isQuiet && !this.#sends()) this.#sleep();
    else this.#next.soon();
  }

  /** Whether there is something to send that the link has room for. */
  #sends(): boolean {
    return this.#adapter.wantsToSend && !this.#blocked;
  }

  /** Turns for programs in other processes, between which those run that wait for this processor. */
  #serve(serving: Serving): void {
    const time = this.#time;
    for (let i = 0; i < SERVING_TURNS; i++) {
      const busy = this.turn();
      if (this.#closed) return;
      if (busy) this.#lastTraffic = time[0];
      const sends = this.#sends();
      const more = !this.#patience.owing && (!this.#drained || sends);
      const isQuiet = !busy && !sends && time[0] - this.#lastTraffic >= SERVING_MICROSECONDS;
      const next = serving.turned(more, isQuiet);
      if (next === Next.SLEEP) {
        this.#sleep();
        return;
      }
      if (next === Next.REST) break;
    }
    this.#next.soon();
  }

  #sleep(): void {
    if (this.#closed) return;
    // A doorbell from now on has to wake this loop; one that just rang is answered.
    const rang = this.#doorbells.sleep(this.#doorbells.consumer);
    if (this.#serving?.sleep() || rang) {
      this.#next.soon();
      return;
    }
    const deadline = Math.min(
      this.#adapter.nextDeadline(),
      this.companion?.nextDeadline() ?? Number.POSITIVE_INFINITY,
    );
    const microseconds = Math.max(0, deadline - clock());
    this.#next.later(this.#patience.limit(microseconds));
  }

  ref(): void {
    this.#next.ref();
  }

  unref(): void {
    this.#next.unref();
  }

  /** Takes in and sends waiting packets, once, and stops for good. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.turn();
    if (this.#patience.owing) this.#sendAll();
    if (this.companion) {
      this.companion.close(clock());
      // A turn sends for a bounded time; the companion's messages to many peers take several.
      for (let i = 0; i < MAX_LAST_TURNS && this.#adapter.wantsToSend && !this.#blocked; i++) this.turn();
    }
    this.#closed = true;
    this.#next.never();
    if (this.#adapter.usesFrames) this.#adapter.closeFrames();
    this.#tell();
    await this.#link.close();
  }
}
