/** Virtual time and a bad network between two connection managers. */
import type { Random } from '@node-roce/sim';
import { type CmMessage, decodeCm } from '@node-roce/sim';
import { other, type Side, type SideName } from './sides.ts';

/** Faults of the network, by probability; times in µs. */
export interface Network {
  loss: number;
  copies: number;
  /** Messages that come later than anything waits for. */
  late: number;
  delay: number;
  lateDelay: number;
}

/** Sides that look only at multiples of `grain` µs: a thread that stalls. */
export type Grains = Record<SideName, number>;

interface Due {
  at: number;
  order: number;
  run: () => void;
}

/** Two sides, the network between them, and the events that are due. */
export class World {
  now = 0;
  readonly sides: Record<SideName, Side>;
  readonly network: Network;
  readonly tally: Map<string, number>;
  /** Messages on their way, and messages that were sent, of each side. */
  readonly sent: Record<SideName, number> = { A: 0, B: 0 };
  /** Messages as sent and as arrived, a line each. */
  readonly trace: string[] = [];
  /** A message has come to a side; `receive` gives it to the side, and returns the names of its answers. */
  onArrival: (name: SideName, message: CmMessage, receive: () => string[]) => void = (
    _name,
    _message,
    receive,
  ) => {
    receive();
  };
  /** A side has reported something. */
  onEvents: (name: SideName) => void = () => {};
  readonly #random: Random;
  readonly #grains: Grains;
  readonly #queue: Due[] = [];
  #order = 0;

  constructor(options: {
    sides: Record<SideName, Side>;
    network: Network;
    grains: Grains;
    random: Random;
    tally: Map<string, number>;
  }) {
    this.sides = options.sides;
    this.network = options.network;
    this.tally = options.tally;
    this.#random = options.random;
    this.#grains = options.grains;
  }

  count(what: string, times = 1): void {
    this.tally.set(what, (this.tally.get(what) ?? 0) + times);
  }

  at(at: number, run: () => void): void {
    const due = { at, order: this.#order++, run };
    const place = this.#queue.findIndex((one) => one.at > at);
    this.#queue.splice(place < 0 ? this.#queue.length : place, 0, due);
  }

  after(delay: number, run: () => void): void {
    this.at(this.now + delay, run);
  }

  /** Delays of the copies that arrive of something sent now. */
  #fate(what: string): number[] {
    const { loss, copies, late, delay, lateDelay } = this.network;
    const arrivals: number[] = [];
    const jitter = () => this.#random.between(10, delay);
    if (this.#random.chance(loss)) this.count(`lost ${what}`);
    else if (this.#random.chance(late)) {
      this.count(`late ${what}`);
      arrivals.push(this.#random.between(delay, lateDelay));
    } else arrivals.push(jitter());
    if (this.#random.chance(copies)) {
      this.count(`copied ${what}`);
      arrivals.push(this.#random.chance(late) ? this.#random.between(delay, lateDelay) : jitter());
    }
    return arrivals;
  }

  /** The next time that a side looks. */
  #looks(name: SideName, at: number): number {
    const grain = this.#grains[name];
    return grain === 0 ? at : Math.ceil(at / grain) * grain;
  }

  /** Puts a side's messages on their way, and gives its events to its program. Returns the names of the messages. */
  collectFrom(from: SideName): string[] {
    const to = other(from);
    const { kind } = this.sides[from];
    const names: string[] = [];
    for (const mad of this.sides[from].take()) {
      this.sent[from]++;
      const message = decodeCm(mad);
      if (typeof message === 'string') throw new Error(`${from} sends what is no message: ${message}`);
      const { name } = message;
      names.push(name);
      this.count(`${kind} ${name}`);
      if (name === 'REJ') this.count(`${kind} REJ ${message.reason}`);
      this.note(`${from} sends`, message);
      for (const delay of this.#fate(name))
        this.at(this.#looks(to, this.now + delay), () => this.#arrive(to, mad, message));
    }
    if (this.sides[from].events.length > 0) this.onEvents(from);
    return names;
  }

  #arrive(to: SideName, mad: Uint8Array, message: CmMessage): void {
    this.note(`${to} takes`, message);
    const side = this.sides[to];
    this.onArrival(to, message, () => {
      side.receive(mad, this.now);
      return this.collectFrom(to);
    });
  }

  /** The same for both. */
  collect(): void {
    this.collectFrom('A');
    this.collectFrom('B');
  }

  /** Adds a line to the trace. */
  note(who: string, message: CmMessage | string): void {
    const time = `${Math.round(this.now)} µs`;
    if (typeof message === 'string') {
      this.trace.push(`${time} ${who} ${message}`);
      return;
    }
    const values = ['localId', 'remoteId', 'requestId', 'qpn', 'reason'] as const;
    const fields = values
      .filter((key) => key in message)
      .map((key) => {
        const value = (message as Record<string, unknown>)[key];
        return `${key} ${(value as number).toString(16)}`;
      });
    this.trace.push(`${time} ${who} ${message.name} ${fields.join(' ')}`);
  }

  /** The first packet of a connection, on its way to a queue pair. */
  sendData(from: SideName, qpn: number, take: (give: () => void) => void): void {
    const to = other(from);
    for (const delay of this.#fate('data'))
      this.at(this.#looks(to, this.now + delay), () => {
        take(() => this.sides[to].data(qpn, this.now));
      });
  }

  #next(): number {
    const { A, B } = this.sides;
    const deadlines = [this.#looks('A', A.nextDeadline()), this.#looks('B', B.nextDeadline())];
    return Math.min(this.#queue[0]?.at ?? Infinity, ...deadlines);
  }

  /** Lets time pass until `end`, or until nothing is due any more. Returns whether nothing is. */
  run(end: number): boolean {
    for (let turn = 0; turn < 1_000_000; turn++) {
      this.collect();
      const next = this.#next();
      if (next > end) {
        if (end < Infinity) this.now = Math.max(this.now, end);
        return next === Infinity;
      }
      this.now = Math.max(this.now, next);
      // Messages that came before timers that are due, as the pump does it.
      while (this.#queue.length > 0 && this.#queue[0].at <= this.now) {
        this.#queue.shift()!.run();
        this.collect();
      }
      for (const name of ['A', 'B'] as SideName[]) this.sides[name].advance(this.now);
    }
    throw new Error('time does not pass');
  }
}
