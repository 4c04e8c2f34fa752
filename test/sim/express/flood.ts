/** Very many small messages: sequence numbers of every kind wrap, with losses, copies and packets that overtake others. */
import { CONNECTION_DEFAULTS } from '@node-roce/sim';
import { Access, type MrCreated } from '@node-roce/transport';
import { createRandom, type Random } from '@node-roce/wire';
import { require } from '../../../packages/sim/src/network/workload-checks.ts';
import { Express, type ExpressHost } from './express.ts';
import { ExpressQp } from './express-qp.ts';

export interface FloodOptions {
  seed: number;
  /** Messages in all. */
  messages: number;
  /** Connections, each busy in both directions. */
  connections: number;
  /** Steps between two checks of the invariants. */
  checkEvery: number;
  /** Called now and then with the messages done so far. */
  progress?: (done: number) => void;
}

export interface FloodOutcome {
  messages: number;
  /** Virtual time, µs. */
  time: number;
  packets: number;
  lost: number;
  duplicated: number;
  reordered: number;
  retransmitted: number;
  /** Times that the PSN of a connection's requests passed 2^24, and that its count of messages did. */
  psnWraps: number;
  messageWraps: number;
}

const ACCESS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;
const DEPTH = 64;
const SLOT = 64;
/** One request in so many is signaled. */
const SIGNALED = 8;

const KINDS = [
  'SEND',
  'SEND',
  'SEND',
  'SEND',
  'RDMA_WRITE',
  'RDMA_WRITE',
  'RDMA_READ',
  'ATOMIC_FETCH_AND_ADD',
] as const;
type Kind = (typeof KINDS)[number];

/** Memory of one end of a connection: what it sends from, what it receives to, what the peer reaches. */
class Memory {
  readonly mr: MrCreated;
  readonly words: Uint32Array;

  constructor(host: ExpressHost, backing: number) {
    const buffer = new ArrayBuffer((4 * DEPTH + 1) * SLOT);
    const length = buffer.byteLength;
    this.mr = host.adapter.registerMr({ pd: host.pd, backing, buffer, offset: 0, length, access: ACCESS });
    this.words = new Uint32Array(buffer);
  }

  readonly sources = (index: number) => (index % DEPTH) * SLOT;
  readonly receives = (index: number) => (DEPTH + (index % DEPTH)) * SLOT;
  readonly written = (index: number) => (2 * DEPTH + (index % DEPTH)) * SLOT;
  readonly answers = (index: number) => (3 * DEPTH + (index % DEPTH)) * SLOT;
  readonly counter = 4 * DEPTH * SLOT;
}

/** One direction of a connection. */
class Direction {
  readonly #qp: ExpressQp;
  readonly #peer: ExpressQp;
  readonly #own: Memory;
  readonly #theirs: Memory;
  readonly #random: Random;
  readonly #limit: number;
  /** Of the requests outstanding, by their place: kind, bytes, and the sum that an atomic must find. */
  readonly #kinds: Kind[] = new Array(DEPTH).fill('SEND');
  readonly #lengths = new Uint32Array(DEPTH);
  readonly #sums = new Uint32Array(DEPTH);
  readonly #sequence = new Uint32Array(DEPTH);
  readonly #messageLengths = new Uint32Array(DEPTH);
  #sum = 0;
  posted = 0;
  done = 0;
  #sends = 0;
  #received = 0;
  #receives = 0;

  constructor(qp: ExpressQp, peer: ExpressQp, own: Memory, theirs: Memory, random: Random, limit: number) {
    this.#qp = qp;
    this.#peer = peer;
    this.#own = own;
    this.#theirs = theirs;
    this.#random = random;
    this.#limit = limit;
    while (this.#receives < DEPTH) this.#postReceive();
  }

  get firstPsn(): number {
    return this.#qp.psn;
  }

  get isDone(): boolean {
    return this.done === this.#limit && this.#received === this.#sends;
  }

  #postReceive(): void {
    const index = this.#receives++;
    this.#peer.postReceive(index >>> 0, { mr: this.#theirs.mr, offset: this.#theirs.receives(index) }, SLOT);
  }

  step(): void {
    this.#peer.pollReceive(this.#onReceive);
    this.#qp.pollSend(this.#onDone);
    while (this.posted - this.done < DEPTH && this.posted < this.#limit) this.#post();
  }

  #post(): void {
    const index = this.posted++;
    const at = index % DEPTH;
    const kind = KINDS[this.#random.next() % KINDS.length];
    const length = kind === 'ATOMIC_FETCH_AND_ADD' ? 8 : 4 + (this.#random.next() % 12) * 4;
    this.#kinds[at] = kind;
    this.#lengths[at] = length;
    const own = this.#own;
    const signaled = index % SIGNALED === SIGNALED - 1 || index === this.#limit - 1;
    const remote = { mr: this.#theirs.mr, offset: this.#theirs.written(index) };
    const reads = kind === 'RDMA_READ' || kind === 'ATOMIC_FETCH_AND_ADD';
    const local = { mr: own.mr, offset: reads ? own.answers(index) : own.sources(index) };
    own.words.fill(reads ? 0 : index, local.offset >> 2, (local.offset + length) >> 2);
    if (kind === 'SEND') {
      this.#sequence[this.#sends % DEPTH] = index;
      this.#messageLengths[this.#sends % DEPTH] = length;
      this.#sends++;
      this.#qp.post(kind, index >>> 0, local, length, undefined, signaled);
      return;
    }
    if (kind === 'ATOMIC_FETCH_AND_ADD') {
      remote.offset = this.#theirs.counter;
      this.#sums[at] = this.#sum;
      this.#sum = (this.#sum + index) >>> 0;
    }
    // The slot was written by the request before it that came this way, if any: both sides know what is there.
    if (kind === 'RDMA_READ') this.#sums[at] = this.#theirs.words[remote.offset >> 2];
    this.#qp.post(kind, index >>> 0, local, length, remote, signaled, index >>> 0);
  }

  readonly #onReceive = (wrId: number, byteLen: number): void => {
    const place = this.#received % DEPTH;
    const expected = this.#sequence[place];
    const at = this.#theirs.receives(this.#received) >> 2;
    const { words } = this.#theirs;
    const right =
      wrId === this.#received >>> 0 &&
      byteLen === this.#messageLengths[place] &&
      words[at] === expected &&
      words[at + byteLen / 4 - 1] === expected;
    if (!right) require(false, 'a message arrived otherwise', { wrId, byteLen, expected, found: words[at] });
    words[at] = ~expected;
    this.#received++;
    this.#postReceive();
  };

  readonly #onDone = (wrId: number): void => {
    while (this.done >>> 0 !== wrId) this.#settle(this.done++);
    this.#settle(this.done++);
  };

  #settle(index: number): void {
    const at = index % DEPTH;
    const length = this.#lengths[at];
    const kind = this.#kinds[at];
    if (kind === 'SEND') return;
    const { words } = kind === 'RDMA_WRITE' ? this.#theirs : this.#own;
    const w = (kind === 'RDMA_WRITE' ? this.#theirs.written(index) : this.#own.answers(index)) >> 2;
    const expected = kind === 'RDMA_WRITE' ? index >>> 0 : this.#sums[at];
    const right = words[w] === expected && (kind !== 'RDMA_WRITE' || words[w + length / 4 - 1] === expected);
    if (!right) require(false, 'a request left something else', { kind, index, expected, found: words[w] });
  }
}

/** @throws Error when anything is lost, comes twice, is damaged, or stands still */
export function runFlood({ seed, messages, connections, checkEvery, progress }: FloodOptions): FloodOutcome {
  const express = new Express({
    seed,
    packetBytes: 64 + SLOT,
    capacity: 8192,
    delay: 10,
    loss: 0.0005,
    duplicate: 0.002,
    reorder: 0.002,
    checkEvery,
  });
  const random = createRandom(seed);
  const [left, right] = express.hosts;
  const each = Math.ceil(messages / (2 * connections));
  const connection = { ...CONNECTION_DEFAULTS, timeout: 8, maxRdAtomic: 16, maxDestRdAtomic: 16 };
  const directions: Direction[] = [];
  for (let i = 0; i < connections; i++) {
    const [a, b] = [left, right].map(
      (host) => new ExpressQp(host, { depth: DEPTH, psn: random.next() & 0xff_ffff }),
    );
    const [mine, theirs] = [left, right].map((host) => new Memory(host, i + 1));
    a.connect(b, connection);
    b.connect(a, connection);
    directions.push(new Direction(a, b, mine, theirs, random, each));
    directions.push(new Direction(b, a, theirs, mine, random, each));
  }
  let [last, lastAt, steps] = [0, 0, 0];
  for (let done = 0; !directions.every(({ isDone }) => isDone); ) {
    for (const direction of directions) direction.step();
    express.turn();
    express.skip(1);
    if (++steps % 1024 !== 0) continue;
    done = directions.reduce((sum, direction) => sum + direction.done, 0);
    if (done !== last) [last, lastAt] = [done, express.now];
    require(express.now - lastAt < 5e6, 'nothing goes on', { done, now: express.now });
    if (steps % (1024 * 1024) === 0) progress?.(done);
  }
  const [a, b] = [left.adapter.counters(), right.adapter.counters()];
  const requests = directions.reduce((sum, direction) => sum + direction.posted, 0);
  const sum = (name: 'lost' | 'duplicated' | 'reordered' | 'sent') => left.counts[name] + right.counts[name];
  // Each message has one PSN.
  const wraps = (first: (direction: Direction) => number) =>
    directions.reduce((n, direction) => n + Math.floor((first(direction) + direction.posted) / 2 ** 24), 0);
  return {
    messages: requests,
    time: express.now,
    packets: sum('sent'),
    lost: sum('lost'),
    duplicated: sum('duplicated'),
    reordered: sum('reordered'),
    retransmitted: a.retransmittedPackets + b.retransmittedPackets,
    psnWraps: wraps(({ firstPsn }) => firstPsn),
    messageWraps: wraps(() => 0),
  };
}
