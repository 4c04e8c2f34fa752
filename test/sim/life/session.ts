/**
 * The life of one reliable connection: two programs make it, use it in both directions and end it, each in its own way
 * and at its own time. Until somebody ends it, everything succeeds; afterwards each side hears of it by the rules.
 */
import {
  type AttributeChange,
  CONNECTION_DEFAULTS,
  ModelAccess,
  type Network,
  type SimDevice,
  type SimSrq,
  type SimWindow,
  type VariableQp,
} from '@node-roce/sim';
import type { Random } from '@node-roce/wire';
import { require } from '../../../packages/sim/src/network/workload-checks.ts';
import { type Inbox, OwnInbox, type SharedInbox } from './inbox.ts';
import type { Lease, MemoryBook } from './memory-book.ts';
import type { Ending, LifeProfile } from './profile.ts';
import { expose, Stream, WINDOW_WR } from './stream.ts';
import type { Tally } from './tally.ts';

/** Without any completion for so long, a session that has something to do is stuck, µs. */
const STUCK = 8e6;
/** Receives of a queue pair of its own. */
const SLOTS = 8;

/** A host, and the objects that its programs share. */
export interface LifeHost {
  device: SimDevice;
  book: MemoryBook;
  shared: SharedInbox;
}

/** A queue pair that was reset, for another session of the same lane. */
export interface Spare {
  qp: VariableQp;
  srq: SimSrq | undefined;
}

export interface SessionOptions {
  network: Network;
  hosts: readonly [LifeHost, LifeHost];
  profile: LifeProfile;
  random: Random;
  tally: Tally;
  /** Nothing is lost between the hosts. */
  lossless: boolean;
  /** Receives are counted in AETHs, and credits obeyed. */
  credits: boolean;
  spares: [Spare | undefined, Spare | undefined];
  /** Leaves a host's link without room for a while. */
  block(host: LifeHost): void;
}

/** One end. */
export interface Side {
  readonly host: LifeHost;
  readonly qp: VariableQp;
  readonly srq: SimSrq | undefined;
  readonly inbox: Inbox;
  readonly own: OwnInbox | undefined;
  readonly exposed: Lease;
  readonly tag: number;
  readonly stream: Stream;
  isClosed: boolean;
  /** Statuses that may end the connection here; none before somebody ended it. */
  mayFail: string[];
  window: SimWindow | undefined;
  windowKey: number;
  values: { maxRdAtomic: number; maxDestRdAtomic: number; timeout: number };
  /** READs and atomics that may be outstanding: more than `maxRdAtomic` if that was lowered while the queue drained. */
  readsOut: number;
  drain: { isDone: boolean; changes: number } | undefined;
  limited: boolean;
  /** Until when this side waits because of an RNR NAK, µs. */
  rnrUntil: number;
  /** Same of the peer. */
  peerRnrUntil(): number;
  /** Index at which its send queue began; undefined where there is none. */
  firstIndex: number | undefined;
  /** Serial numbers of requests that arrived here. */
  readonly arrived: Set<number>;
}

/** An RC session between two hosts: opened, used, ended, and opened again. */
export class Session {
  readonly sides: readonly [Side, Side];
  readonly #options: SessionOptions;
  readonly #count: number;
  readonly #ending: Ending;
  readonly #endsAt: number;
  #ended = false;
  /** The side that ends it, once the time has come; and how long it may wait for packets that wait for its link. */
  #acting: { side: Side; until: number } | undefined;
  #lastProgress: number;
  #settled = 0;

  constructor(options: SessionOptions) {
    this.#options = options;
    const { profile, random, network, tally } = options;
    this.#count = random.between(...profile.requests);
    this.#ending = random.pick(profile.endings);
    this.#endsAt = random.between(0, this.#count - 1);
    this.#lastProgress = network.now;
    const depth = random.pick(profile.depths);
    const useWindow = this.#ending === 'window' || random.chance(profile.window);
    this.sides = [this.#side(0, depth), this.#side(1, depth)];
    this.#connect();
    for (const [i, side] of this.sides.entries()) {
      for (let n = 0; n < SLOTS; n++) if (!profile.scarce) side.inbox.post();
      if (useWindow) this.#bind(side);
      else this.sides[1 - i].stream.aim(side.exposed, side.exposed.region.rkey, side.tag);
    }
    tally.add('sessions');
  }

  #side(index: 0 | 1, depth: number): Side {
    const { profile, random, hosts, spares, tally, network } = this.#options;
    const host = hosts[index];
    const { device, book } = host;
    const spare = spares[index];
    spares[index] = undefined;
    const srq = spare ? spare.srq : random.chance(profile.srq) ? host.shared.srq : undefined;
    const psn = profile.psnWraps ? 0x100_0000 - random.between(1, 60) : random.between(0, 0xff_ffff);
    const qp = spare?.qp ?? device.createQp({ service: 'RC', psn, ...(srq === undefined ? {} : { srq }) });
    if (spare) {
      qp.reset(psn);
      tally.add('queue pairs connected again after reset');
    }
    const own =
      srq === undefined ? new OwnInbox(book, SLOTS, (receive) => qp.postReceive(receive)) : undefined;
    const { kinds, longest, fresh } = profile;
    const stream = new Stream({ qp, book, random, depth, fresh, kinds, longest });
    stream.now = () => network.now;
    stream.peerFailure = () =>
      this.peerOf(this.sides[index])
        .qp.pollSend()
        .map(({ status }) => status)
        .join();
    const tag = random.next();
    return {
      host,
      qp,
      srq,
      inbox: own ?? host.shared,
      own,
      exposed: expose(book, tag),
      tag,
      stream,
      isClosed: false,
      mayFail: [],
      window: undefined,
      windowKey: 0,
      values: { maxRdAtomic: 1, maxDestRdAtomic: 1, timeout: random.pick(profile.timeouts) },
      readsOut: 0,
      drain: undefined,
      limited: false,
      rnrUntil: 0,
      peerRnrUntil: () => this.sides[1 - index].rnrUntil,
      firstIndex: qp.sendIndex,
      arrived: new Set(),
    };
  }

  #connect(): void {
    const { profile, random, credits } = this.#options;
    const pathMtu = random.pick(profile.pathMtus);
    const maxRdAtomic = random.pick(profile.maxRdAtomics);
    for (const [i, side] of this.sides.entries()) {
      side.values.maxRdAtomic = side.values.maxDestRdAtomic = side.readsOut = maxRdAtomic;
      side.qp.connect(this.sides[1 - i].qp.info, {
        ...CONNECTION_DEFAULTS,
        pathMtu,
        credits,
        maxRdAtomic,
        maxDestRdAtomic: maxRdAtomic,
        timeout: side.values.timeout,
        minRnrTimer: random.pick(profile.minRnrTimers),
      });
    }
  }

  #bind(side: Side): void {
    const { random } = this.#options;
    const { device } = side.host;
    const type = random.pick([1, 2] as const);
    const window = device.allocWindow(type);
    side.window = window;
    side.windowKey = ((window.rkey & ~0xff) | ((window.rkey + 1) & 0xff)) >>> 0;
    const { bytes } = side.exposed;
    side.qp.postSend({
      wrId: WINDOW_WR,
      opcode: 'BIND_MW',
      offset: 0,
      length: 0,
      bind: {
        window,
        rkey: side.windowKey,
        region: side.exposed.region,
        offset: 0,
        length: bytes.length,
        access: ModelAccess.REMOTE_READ | ModelAccess.REMOTE_WRITE | ModelAccess.REMOTE_ATOMIC,
      },
    });
  }

  get isOver(): boolean {
    return this.sides.every(({ isClosed }) => isClosed);
  }

  peerOf(side: Side): Side {
    return this.sides[0] === side ? this.sides[1] : this.sides[0];
  }

  /** Polls completions, posts while there is room, ends the connections that are to end. @throws Error */
  step(): void {
    for (const side of this.sides) this.#poll(side);
    if (this.isOver) return;
    for (const side of this.sides) if (!side.isClosed) this.#post(side);
    this.#end();
    this.#close();
    this.#watch();
  }

  #poll(side: Side): void {
    if (side.isClosed) return;
    const peer = this.peerOf(side);
    // A message completes at the receiver before its sender gets the completion.
    peer.stream.receive(side.qp.pollReceive(), side.inbox, side.mayFail);
    if (!peer.isClosed) side.stream.receive(peer.qp.pollReceive(), peer.inbox, peer.mayFail);
    const completions = side.qp.pollSend();
    if (completions.length > 0) this.#lastProgress = this.#options.network.now;
    const bound = completions.find(({ wrId }) => wrId === WINDOW_WR);
    if (bound?.status === 'SUCCESS' && !peer.stream.isAimed) {
      peer.stream.aim(side.exposed, side.windowKey, side.tag);
    } else if (bound !== undefined) {
      require(side.mayFail.length > 0, 'a window was not bound', bound);
    }
    side.stream.poll(completions, side.mayFail, !peer.isClosed);
    const settled = this.sides[0].stream.received + this.sides[1].stream.received;
    if (settled !== this.#settled) this.#lastProgress = this.#options.network.now;
    this.#settled = settled;
  }

  #post(side: Side): void {
    const { profile, random } = this.#options;
    const { stream, inbox } = side;
    if (!profile.scarce && inbox.waiting < SLOTS && (inbox.waiting === 0 || random.chance(0.5))) inbox.post();
    if (!stream.isAimed || stream.failure !== undefined || side.qp.state === 'ERR') return;
    const depth = stream.depth;
    while (stream.posted < this.#count && stream.outstanding < depth)
      stream.post(stream.posted === this.#count - 1);
  }

  /** By the clock of the workload. */
  tick(): void {
    const { profile, random, tally } = this.#options;
    if (this.isOver) return;
    for (const side of this.sides) {
      if (side.isClosed) continue;
      if (profile.scarce && random.chance(0.4)) side.inbox.post();
      if (this.#ended) continue;
      if (side.limited ? random.chance(0.2) : random.chance(profile.rate)) this.#limit(side);
      if (side.drain !== undefined) this.#change(side);
      else if (!side.limited && random.chance(profile.drain) && side.stream.isAimed) {
        side.qp.drain();
        side.drain = { isDone: false, changes: random.between(1, 3) };
        tally.add('queue pairs drained');
      }
    }
    this.step();
  }

  #limit(side: Side): void {
    const { random, tally } = this.#options;
    if (side.drain !== undefined) return;
    side.limited = !side.limited;
    if (!side.limited) tally.add('rates lifted');
    // Slow enough that nothing would happen before the session counts as stuck.
    side.qp.change({ rateLimit: side.limited ? random.pick([1, 8, 100_000]) : 0 });
  }

  /** In SQD: tries something while it drains, now and then; changes what it likes afterwards; goes on. */
  #change(side: Side): void {
    const { random, tally } = this.#options;
    const drain = side.drain!;
    if (side.qp.state !== 'SQD') return;
    if (!drain.isDone && side.qp.draining) {
      if (!random.chance(0.3)) return;
      tally.add('attributes tried while draining');
      try {
        this.#draw(side, true);
      } catch {
        tally.add('attributes refused while draining');
      }
      return;
    }
    if (!drain.isDone) side.readsOut = side.values.maxRdAtomic;
    drain.isDone = true;
    if (drain.changes-- > 0) {
      this.#draw(side, drain.changes > 0);
      tally.add('attributes changed in SQD');
      return;
    }
    // With values that the connection can live with.
    const { maxRdAtomic, timeout } = side.values;
    const limit = this.peerOf(side).values.maxDestRdAtomic;
    const needed: AttributeChange = {};
    if (maxRdAtomic === 0 || maxRdAtomic > limit) {
      needed.maxRdAtomic = side.values.maxRdAtomic = side.readsOut = Math.max(1, limit);
    }
    if (timeout === 0) needed.timeout = side.values.timeout = 11;
    if (Object.keys(needed).length > 0) side.qp.change(needed);
    side.drain = undefined;
    side.qp.resume();
  }

  #draw(side: Side, mayStop: boolean): void {
    const { random, profile } = this.#options;
    const peer = this.peerOf(side);
    const limit = peer.values.maxDestRdAtomic;
    const kinds = [
      'maxRdAtomic',
      'maxDestRdAtomic',
      'timeout',
      'minRnrTimer',
      'trafficClass',
      'retryCnt',
    ] as const;
    const kind = random.pick(kinds);
    const drawn = {
      maxRdAtomic: mayStop && random.chance(0.4) ? 0 : random.between(1, Math.max(1, limit)),
      maxDestRdAtomic: random.between(Math.max(1, peer.readsOut), 32),
      timeout: mayStop && random.chance(0.4) ? 0 : random.pick(profile.timeouts),
      minRnrTimer: random.pick(profile.minRnrTimers),
      trafficClass: random.between(0, 63) << 2,
      retryCnt: 7,
    };
    side.qp.change({ [kind]: drawn[kind] });
    if (kind === 'maxRdAtomic' || kind === 'maxDestRdAtomic' || kind === 'timeout')
      side.values[kind] = drawn[kind];
    side.readsOut = Math.max(side.readsOut, side.values.maxRdAtomic);
  }

  /** The ending, once so many requests are done. */
  #end(): void {
    const { random, network } = this.#options;
    if (this.#ended || this.#ending === 'finish' || this.sides.some(({ isClosed }) => isClosed)) return;
    const acting = this.#acting?.side ?? random.pick(this.sides);
    const peer = this.peerOf(acting);
    const done = Math.min(
      acting.stream.posted - acting.stream.outstanding,
      peer.stream.posted - peer.stream.outstanding,
    );
    if (done < this.#endsAt || peer.stream.outstanding === 0) return;
    this.#acting ??= { side: acting, until: this.#prepare(acting) };
    const waits = acting.host.device.waiting(acting.qp.info.qpn) > 0;
    if (network.now < this.#acting.until && !waits) return;
    if (!this.#act(this.#ending, acting, peer)) return;
    this.#ended = true;
    for (const side of this.sides) if (side.drain !== undefined || side.limited) this.#restore(side);
  }

  /** Half of the time the link is full when something ends. Returns until when to wait for packets that wait, µs. */
  #prepare({ host }: Side): number {
    const { random, network, profile, block } = this.#options;
    if (profile.block === 0 || random.chance(0.5)) return 0;
    block(host);
    return network.now + 2000;
  }

  #restore(side: Side): void {
    if (side.isClosed || side.qp.state === 'ERR') return;
    if (side.values.timeout === 0) side.qp.change({ timeout: 11 });
    if (side.drain !== undefined) side.qp.resume();
    if (side.limited) side.qp.change({ rateLimit: 0 });
    side.drain = undefined;
    side.limited = false;
  }

  /** False where there is nothing to act on yet. */
  #act(ending: Ending, acting: Side, peer: Side): boolean {
    const { tally, network } = this.#options;
    const gone = ['RETRY_EXC_ERR'];
    const refused = ['REM_ACCESS_ERR', 'REM_OP_ERR', 'RETRY_EXC_ERR'];
    switch (ending) {
      case 'destroy':
      case 'reset':
        // The program may deregister what the peer reaches before the queue pair goes.
        peer.mayFail = refused;
        this.#closeSide(acting, ending);
        return true;
      case 'fail':
        acting.mayFail = ['WR_FLUSH_ERR'];
        peer.mayFail = gone;
        acting.qp.fail();
        return true;
      case 'deregister-own': {
        const lease = acting.stream.leaseInUse;
        if (lease === undefined) return false;
        acting.mayFail = ['LOC_PROT_ERR', 'RETRY_EXC_ERR'];
        peer.mayFail = gone;
        acting.host.book.release(lease, network.now);
        break;
      }
      case 'deregister-exposed':
        if (acting.window !== undefined) acting.host.device.freeWindow(acting.window);
        acting.window = undefined;
        acting.mayFail = peer.mayFail = refused;
        acting.host.book.release(acting.exposed, network.now);
        break;
      case 'window':
        acting.mayFail = peer.mayFail = refused;
        acting.host.device.freeWindow(acting.window!);
        acting.window = undefined;
        tally.add('windows ended with requests outstanding');
        break;
    }
    if (ending !== 'window') tally.add('regions deregistered with requests outstanding');
    this.#noteWaiting(acting);
    return true;
  }

  #noteWaiting(side: Side): void {
    const { tally } = this.#options;
    if (side.host.device.waiting(side.qp.info.qpn) > 0)
      tally.add('packets waited for the link when something ended');
  }

  #close(): void {
    const { random, lossless, profile } = this.#options;
    for (const side of this.sides) {
      if (side.isClosed) continue;
      const peer = this.peerOf(side);
      // A copy of an old packet must not look new: with PSNs that begin alike, each session has queue pairs of its own.
      const how = profile.psnWraps ? 'destroy' : random.pick(['destroy', 'reset'] as const);
      if (this.#ended) {
        const over = side.stream.failure !== undefined || peer.isClosed || this.#allSettled;
        if (over && side.stream.outstanding === 0) this.#closeSide(side, how);
        else if (peer.isClosed && random.chance(0.002)) this.#closeSide(side, how);
        continue;
      }
      const mine = side.stream.posted === this.#count && side.stream.outstanding === 0;
      const theirs = peer.stream.posted === this.#count && peer.stream.messagesDue === 0;
      if (!mine || !theirs) continue;
      // Where an ACK may be lost, a program stays until the peer knows.
      if (!(lossless && profile.closesAtOnce) && peer.stream.outstanding > 0) continue;
      if (peer.stream.outstanding > 0) this.#options.tally.add('closed in the turn of the last message');
      this.#closeSide(side, how);
    }
  }

  get #allSettled(): boolean {
    return this.sides.every(({ stream }) => stream.posted === this.#count && stream.isSettled);
  }

  #closeSide(side: Side, how: 'destroy' | 'reset'): void {
    const { network, random, tally, spares } = this.#options;
    const { host, qp } = side;
    const peer = this.peerOf(side);
    const inFlight =
      network.flyingTo(host.device, qp.info.qpn) > 0 ||
      network.flyingTo(peer.host.device, peer.qp.info.qpn) > 0 ||
      host.device.waiting(qp.info.qpn) > 0;
    if (inFlight) tally.add(`queue pairs ${how === 'reset' ? 'reset' : 'destroyed'} with packets in flight`);
    this.#noteWaiting(side);
    peer.stream.checkExposed();
    const memoryFirst = random.chance(0.3);
    if (memoryFirst) this.#releaseExposed(side);
    side.isClosed = true;
    if (how === 'destroy') {
      host.device.destroyQp(qp);
    } else {
      qp.reset(0);
      spares[this.sides[0] === side ? 0 : 1] = { qp, srq: side.srq };
    }
    if (!memoryFirst) this.#releaseExposed(side);
    side.stream.close();
    if (side.own !== undefined) host.book.release(side.own.lease, network.now);
  }

  #releaseExposed(side: Side): void {
    if (side.window !== undefined) side.host.device.freeWindow(side.window);
    side.window = undefined;
    side.host.book.release(side.exposed, this.#options.network.now);
  }

  #watch(): void {
    const { now } = this.#options.network;
    const busy = this.sides.some(
      ({ isClosed, stream }) => !isClosed && (stream.outstanding > 0 || !this.#ended),
    );
    if (!busy || this.isOver) this.#lastProgress = now;
    require(now - this.#lastProgress < STUCK, 'a session is stuck', {
      ending: this.#ending,
      ended: this.#ended,
      sides: this.sides.map(({ isClosed, qp, stream }) => ({
        isClosed,
        state: isClosed ? '' : qp.state,
        posted: stream.posted,
        outstanding: stream.outstanding,
        due: stream.messagesDue,
      })),
    });
  }
}
