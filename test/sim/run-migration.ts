/**
 * One seeded run of path migration: streams of SENDs, WRITEs, atomics and READs that go on while the connection moves back and forth between two
 * paths. Each path in use is cut, or left by a program, in the middle of a message. A ledger lists the messages that have to be delivered,
 * the oracle the packets and events that are allowed.
 */
import { createRandom, type Random } from '@node-roce/sim';
import type { MrCreated, QpAttr } from '../../packages/transport/src/index.ts';
import { type Completion, Pair, type Side, type Watch } from '../../packages/transport/testing/pair.ts';
import { alternateTo, migrating } from '../../packages/transport/testing/two-paths.ts';
import { MigrationOracle } from './migration-oracle.ts';

const PATH_MTU = 4096;
const RETRY_CNT = 3;
/** Exponents of the ACK timeout, of paths 0 and 1. */
export const TIMEOUTS = [8, 9] as const;
const PSNS: [number, number] = [0xff_fff0, 0x10];

/** Longest message, bytes. */
const LONGEST = 128 * 1024;
/** Requests that a stream has out. */
const DEPTH = 8;
/** Receives, and places that are written in turn. */
const PLACES = 16;
/** A request without bytes, which shows the peer this side's MigReq while nothing else is sent. */
const BEAT = 0xffff_ffff;

export interface MigrationRun {
  seed: number;
  /** Why the connection leaves a path; where only one side does so, the other one follows its MigReq. */
  cause: 'retries' | 'modify';
  /** The sides that send requests and call modify. */
  who: 'left' | 'right' | 'both';
  migrations: number;
  /** Of messages, at least. */
  bytes: number;
  /** Share of packets that are lost on a path that is not cut. */
  loss?: number;
  /** Changes packets before the oracle sees them. */
  distort?: (event: 'sent' | 'arrived', packet: Uint8Array) => Uint8Array;
}

export interface MigrationOutcome {
  bytes: number;
  left: MigrationOracle;
  right: MigrationOracle;
  /** Migrations with a message under way. */
  middles: number;
}

/** Two sides under the eyes of their oracles. */
export class JudgedPair extends Pair {
  readonly oracles: Record<'left' | 'right', MigrationOracle>;
  #now = () => 0;

  constructor({
    seed,
    retryCnt = RETRY_CNT,
    distort,
  }: { seed: number; retryCnt?: number } & Pick<MigrationRun, 'distort'>) {
    const raise = (name: 'left' | 'right', type: string) => this.oracles[name].event(type, this.#now());
    super({
      seed,
      mtu: PATH_MTU,
      psn: PSNS,
      left: { ...migrating(1), onAsyncEvent: ({ type }) => raise('left', type) },
      right: { ...migrating(2), onAsyncEvent: ({ type }) => raise('right', type) },
      attr: { timeout: TIMEOUTS[0], retryCnt },
    });
    this.#now = () => this.now;
    const judged = (name: 'left' | 'right', [sqPsn, rqPsn]: [number, number]) => {
      const side = this[name];
      const peer = side === this.left ? this.right : this.left;
      const path = { index: 0, timeout: TIMEOUTS[0] };
      const { qpn } = side.qp;
      return new MigrationOracle({
        name,
        qpn,
        peerQpn: peer.qp.qpn,
        sqPsn,
        rqPsn,
        pathMtu: PATH_MTU,
        retryCnt,
        path,
      });
    };
    this.oracles = { left: judged('left', PSNS), right: judged('right', [PSNS[1], PSNS[0]]) };
    const watch: Watch = (event, side, packet, gids) => {
      const oracle = this.oracles[this.#nameOf(side)];
      oracle[event](distort?.(event, packet) ?? packet, gids, this.now);
      if (event === 'sent') this.#compare(side, oracle);
    };
    this.watch = watch;
  }

  modify(side: Side, attr: QpAttr): void {
    side.adapter.modifyQp(side.qp.qpn, attr);
  }

  /** Loads the path that is not in use. */
  rearm(side: Side): void {
    const oracle = this.oracles[this.#nameOf(side)];
    const index = 1 - oracle.primary.index;
    const timeout = TIMEOUTS[index];
    oracle.rearm({ index, timeout });
    const peer = side === this.left ? 2 : 1;
    this.modify(side, { ...alternateTo(peer, { altTimeout: timeout }, index), pathMigState: 'REARM' });
  }

  migrate(side: Side): void {
    this.oracles[this.#nameOf(side)].migrate(this.now);
    this.modify(side, { pathMigState: 'MIGRATED' });
  }

  /** Runs in steps of 20 µs. */
  until(done: () => boolean, step: () => void = () => {}): void {
    for (let steps = 0; !done(); steps++) {
      if (steps > 100_000) throw new Error(`stuck at ${this.now} µs`);
      this.run(20);
      step();
    }
  }

  /** A query agrees with the state that follows from packets, calls and events. */
  #compare(side: Side, oracle: MigrationOracle): void {
    const { attr } = side.adapter.queryQp(side.qp.qpn);
    if (attr.pathMigState === 'ARMED') oracle.isArmed();
    const { state, primary } = oracle;
    const found = [attr.pathMigState, attr.ahAttr?.grh.sgidIndex, attr.timeout];
    const expected = [state, primary.index, primary.timeout];
    if (found.join() !== expected.join()) {
      throw new Error(`${this.#nameOf(side)} at ${this.now} µs: query gives ${found}, expected ${expected}`);
    }
  }

  #nameOf(side: Side): 'left' | 'right' {
    return side === this.left ? 'left' : 'right';
  }
}

/** IBV_WC_RECV and above: of the receive queue. */
const isReceive = ({ opcode }: Completion) => opcode >= 128;

/** Requests of one side, each with its expected result. */
class Stream {
  /** Bytes posted. */
  bytes = 0;
  readonly side: Side;
  readonly #peer: Side;
  readonly #random: Random;
  readonly #source = new Uint8Array(2 * LONGEST);
  readonly #places = new Uint8Array(PLACES * LONGEST);
  readonly #receives = new Uint8Array(PLACES * LONGEST);
  readonly #read = new Uint8Array(PLACES * LONGEST);
  readonly #results = new BigUint64Array(PLACES);
  readonly #counter = new BigUint64Array(1);
  readonly #regions: Record<'source' | 'places' | 'receives' | 'read' | 'result' | 'counter', MrCreated>;
  readonly #out: { wrId: number; length: number; check: () => void }[] = [];
  /** Of messages that take a receive, in order: number, and where their bytes are. */
  readonly #due: { immediate: number; content: Uint8Array; place: Uint8Array | undefined }[] = [];
  #posted = 0;
  #received = 0;
  #adds = 0n;
  /** Of the last WRITE: length, bytes, and where they go. A READ asks for them. */
  #length = 0;
  #written = new Uint8Array();
  #place = new Uint8Array();

  constructor(side: Side, peer: Side, random: Random) {
    this.side = side;
    this.#peer = peer;
    this.#random = random;
    for (let i = 0; i < this.#source.length; i++) this.#source[i] = random.next();
    this.#regions = {
      source: side.register(this.#source.buffer),
      read: side.register(this.#read.buffer),
      result: side.register(this.#results.buffer),
      places: peer.register(this.#places.buffer),
      receives: peer.register(this.#receives.buffer),
      counter: peer.register(this.#counter.buffer),
    };
    for (let i = 0; i < PLACES; i++) this.#postReceive();
  }

  get isIdle(): boolean {
    return this.#out.length === 0;
  }

  /** A message of some bytes is under way. */
  get isInMessage(): boolean {
    return this.#out.some(({ length }) => length > 0);
  }

  #postReceive(): void {
    const offset = (this.#received % PLACES) * LONGEST;
    this.#peer.postRecv(this.#received++, [{ mr: this.#regions.receives, offset, length: LONGEST }]);
  }

  /** Posts until so many bytes were posted, as far as there is room; a beat where there is nothing else to send. */
  pump(limit: number): void {
    while (this.#out.length < DEPTH && this.bytes < limit) this.#postNext();
    if (this.isIdle) {
      this.side.post({ opcode: 'RDMA_WRITE', wrId: BEAT, sge: [] });
      this.#out.push({ wrId: BEAT, length: 0, check: () => {} });
    }
  }

  #postNext(): void {
    const { side } = this;
    const { source, places, read, result, counter } = this.#regions;
    const i = this.#posted++;
    // Of each kind a place of its own: several are out at once, and completions are polled together.
    const n = (i >> 2) % PLACES;
    if (i % 4 < 2) this.#length = 1 + this.#random.between(0, LONGEST - 1);
    const length = this.#length;
    const offset = this.#random.between(0, LONGEST - 1);
    const content = this.#source.subarray(offset, offset + length);
    const sge = [{ mr: source, offset, length }];
    let check = () => {};
    switch (i % 4) {
      case 0:
        side.post({ opcode: 'SEND_WITH_IMM', wrId: i, sge, immediate: i });
        this.#due.push({ immediate: i, content, place: undefined });
        break;
      case 1: {
        const at = n * LONGEST;
        const remote = { addr: places.addr + BigInt(at), rkey: places.rkey };
        side.post({ opcode: 'RDMA_WRITE_WITH_IMM', wrId: i, sge, immediate: i, remote });
        this.#place = this.#places.subarray(at, at + length);
        this.#written = content;
        this.#due.push({ immediate: i, content, place: this.#place });
        break;
      }
      case 2: {
        const add = [{ mr: result, offset: 8 * n, length: 8 }];
        side.post({ opcode: 'ATOMIC_FETCH_AND_ADD', wrId: i, compareAdd: 1n, sge: add, remote: counter });
        const before = this.#adds++;
        check = () =>
          this.#same(this.#results[n] === before, `atomic ${i} found ${this.#results[n]}, not ${before}`);
        break;
      }
      default: {
        const remote = { addr: places.addr + BigInt(this.#place.byteOffset), rkey: places.rkey };
        side.post({ opcode: 'RDMA_READ', wrId: i, sge: [{ mr: read, offset: n * LONGEST, length }], remote });
        const written = this.#written;
        check = () =>
          this.#same(
            Buffer.compare(this.#read.subarray(n * LONGEST, n * LONGEST + length), written) === 0,
            `READ ${i} differs`,
          );
      }
    }
    if (i % 4 !== 2) this.bytes += length;
    this.#out.push({ wrId: i, length: i % 4 === 2 ? 8 : length, check });
  }

  completed({ wrId, status }: Completion): void {
    const expected = this.#out.shift();
    this.#same(status === 'SUCCESS' && wrId === expected?.wrId, `${wrId} ${status}, not ${expected?.wrId}`);
    expected!.check();
  }

  received({ wrId, status, byteLen, immediate }: Completion): void {
    const expected = this.#due.shift();
    const what = `receive ${wrId} ${status} of message ${immediate}`;
    this.#same(
      status === 'SUCCESS' && immediate === expected?.immediate,
      `${what}, not ${expected?.immediate}`,
    );
    const { content, place } = expected!;
    const at = (wrId % PLACES) * LONGEST;
    const bytes = place ?? this.#receives.subarray(at, at + byteLen);
    this.#same(
      byteLen === content.length && Buffer.compare(bytes, content) === 0,
      `${what}: its bytes differ`,
    );
    this.#postReceive();
  }

  /** Nothing is due any more, and nothing was done twice. */
  finish(): void {
    this.#same(this.#due.length === 0 && this.isIdle, 'messages are missing');
    this.#same(this.#counter[0] === this.#adds, `${this.#counter[0]} additions, not ${this.#adds}`);
  }

  #same(holds: boolean, fault: string): void {
    if (!holds) throw new Error(fault);
  }
}

export function runMigration(run: MigrationRun): MigrationOutcome {
  const { seed, cause, who, migrations, loss = 0 } = run;
  const random = createRandom(seed);
  const pair = new JudgedPair(run);
  const { left, right } = pair;
  const sides = [left, right];
  const oracles = Object.values(pair.oracles);
  const asking = who === 'both' ? sides : [pair[who]];
  const streams = asking.map((side) => new Stream(side, side === left ? right : left, random));
  let share = 0;
  /** Takes completions, and posts as much as the share allows. */
  const serve = () => {
    pair.sent.length = 0;
    const done = new Map(sides.map((side) => [side, side.poll()]));
    for (const stream of streams) {
      for (const wc of done.get(stream.side)!) {
        if (isReceive(wc)) continue;
        stream.completed(wc);
        pair.oracles[stream.side === left ? 'left' : 'right'].requests.completed(pair.now);
      }
      const peer = stream.side === left ? right : left;
      for (const wc of done.get(peer)!) if (isReceive(wc)) stream.received(wc);
      stream.pump(share);
    }
  };
  const weather: Pair['fault'] = (packet) => (random.chance(loss) ? [] : [{ packet, delay: 0 }]);
  pair.fault = weather;

  let middles = 0;
  for (let i = 0; i < migrations; i++) {
    const path = i & 1;
    // A side that goes to REARM before the peer has seen its MigReq 1 is never armed (P4).
    pair.until(() => oracles.every(({ hasSeenOne }) => hasSeenOne), serve);
    const order = random.chance(0.5) ? [left, right] : [right, left];
    for (const side of order) {
      pair.rearm(side);
      for (let steps = random.between(0, 3); steps > 0; steps--) {
        pair.run(20);
        serve();
      }
    }
    pair.until(() => oracles.every(({ state }) => state === 'ARMED'), serve);

    // The path takes so many packets more, of one side or of both, and then none.
    const cut = random.pick([[left], [right], sides]);
    let room = random.between(0, 39);
    let isCut = false;
    pair.fault = (packet, now, sgidIndex, from) => {
      if (sgidIndex !== path || !cut.includes(from) || room-- > 0)
        return weather(packet, now, sgidIndex, from);
      isCut = true;
      return [];
    };
    share = (run.bytes * (i + 1)) / migrations / streams.length;
    const isOver = () => oracles.every(({ migrations }) => migrations === i + 1);
    pair.until(() => isCut, serve);
    if (streams.some(({ isInMessage }) => isInMessage)) middles++;
    if (cause === 'modify') {
      pair.run(random.between(0, 499));
      for (const side of asking) {
        if (pair.oracles[side === left ? 'left' : 'right'].state === 'ARMED') pair.migrate(side);
      }
    }
    pair.until(isOver, serve);
    pair.fault = weather;
  }
  share = run.bytes / streams.length;
  pair.until(() => streams.every(({ bytes, isInMessage }) => bytes >= share && !isInMessage), serve);
  // The last beats, and their ACKs.
  pair.fault = undefined;
  share = 0;
  pair.run(1_000_000);
  for (const side of sides) {
    for (const wc of side.poll()) {
      const stream = streams.find((stream) => (stream.side === side) !== isReceive(wc))!;
      if (isReceive(wc)) stream.received(wc);
      else stream.completed(wc);
    }
  }
  for (const stream of streams) stream.finish();
  for (const oracle of oracles) oracle.settle(pair.now);
  return { ...pair.oracles, middles, bytes: streams.reduce((sum, { bytes }) => sum + bytes, 0) };
}
