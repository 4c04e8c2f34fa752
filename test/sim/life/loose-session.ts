/**
 * The life of two queue pairs of UC or UD: messages may be lost, but what arrives is whole, in order on UC, and was sent;
 * what completed at the sender has left its memory. They end as reliable ones do, and the peer hears nothing of it.
 */
import {
  CONNECTION_DEFAULTS,
  GRH_BYTES,
  type ModelCompletion,
  type Network,
  type SimSend,
  type VariableQp,
} from '@node-roce/sim';
import type { Random } from '@node-roce/wire';
import { require } from '../../../packages/sim/src/network/workload-checks.ts';
import { type Inbox, OwnInbox } from './inbox.ts';
import type { Lease } from './memory-book.ts';
import { fillPattern, matchPattern } from './pattern.ts';
import type { LifeProfile } from './profile.ts';
import type { LifeHost } from './session.ts';
import type { Tally } from './tally.ts';

/** Receives of a queue pair of its own. */
const SLOTS = 8;
/** Requests outstanding. */
const DEPTH = 8;
/** Bytes of a message that hold its number. */
const HEAD = 4;
/** Time after the last message in which all of them arrive, µs. */
const LINGER = 20_000;

const ENDINGS = ['finish', 'destroy', 'reset', 'fail', 'deregister-own'] as const;

export interface LooseSessionOptions {
  network: Network;
  hosts: readonly [LifeHost, LifeHost];
  profile: LifeProfile;
  random: Random;
  tally: Tally;
  service: 'UC' | 'UD';
  /** The wire brings nothing twice and keeps the order. */
  inOrder: boolean;
  block(host: LifeHost): void;
}

interface Request {
  send: SimSend;
  lease: Lease;
  tag: number;
}

class LooseSide {
  readonly host: LifeHost;
  readonly qp: VariableQp;
  readonly inbox: Inbox;
  readonly own: OwnInbox | undefined;
  readonly requests: Request[] = [];
  done = 0;
  /** Of the messages of the peer: those that arrived. */
  readonly arrived: number[] = [];
  isClosed = false;
  mayFail: string[] = [];

  constructor(host: LifeHost, qp: VariableQp, isShared: boolean) {
    this.host = host;
    this.qp = qp;
    this.own = isShared
      ? undefined
      : new OwnInbox(host.book, SLOTS, (receive) => qp.postReceive(receive), GRH_BYTES);
    this.inbox = this.own ?? host.shared;
  }

  get outstanding(): number {
    return this.requests.length - this.done;
  }
}

/** A UC or UD session: opened, used, ended, and opened again. */
export class LooseSession {
  readonly sides: readonly [LooseSide, LooseSide];
  readonly #options: LooseSessionOptions;
  readonly #count: number;
  readonly #ending: (typeof ENDINGS)[number];
  readonly #endsAt: number;
  #ended = false;
  #blocks: boolean;
  #quietSince = 0;

  constructor(options: LooseSessionOptions) {
    this.#options = options;
    const { random, profile, hosts, service, tally } = options;
    this.#count = random.between(...profile.requests);
    this.#ending = random.pick(ENDINGS);
    this.#endsAt = random.between(0, this.#count - 1);
    this.#blocks = profile.block > 0 && random.chance(0.5);
    const [a, b] = hosts.map((host) => {
      const isShared = random.chance(profile.srq);
      const psn = random.chance(0.3) ? 0xff_fff0 : random.between(0, 0xff_ffff);
      const srq = isShared ? { srq: host.shared.srq } : {};
      return new LooseSide(host, host.device.createQp({ service, psn, qkey: 0x1234, ...srq }), isShared);
    });
    this.sides = [a, b];
    const connection = { ...CONNECTION_DEFAULTS, pathMtu: random.pick(profile.pathMtus) };
    a.qp.connect(b.qp.info, connection);
    b.qp.connect(a.qp.info, connection);
    tally.add(`sessions of ${service}`);
  }

  get isOver(): boolean {
    return this.sides.every(({ isClosed }) => isClosed);
  }

  tick(): void {
    this.step();
  }

  /** @throws Error */
  step(): void {
    const { random, network } = this.#options;
    for (const side of this.sides) if (!side.isClosed) this.#poll(side);
    for (const side of this.sides) {
      if (side.isClosed) continue;
      if (side.inbox.waiting < SLOTS && random.chance(0.8)) side.inbox.post();
      while (this.#mayPost(side)) this.#post(side);
    }
    this.#end();
    const busy = this.sides.some((side) => !side.isClosed && (side.outstanding > 0 || this.#mayPost(side)));
    if (busy) this.#quietSince = network.now;
    else if (network.now - this.#quietSince >= LINGER || this.#ended) {
      for (const side of this.sides) if (!side.isClosed) this.#close(side, 'destroy');
    }
  }

  #mayPost({ qp, requests, outstanding }: LooseSide): boolean {
    return qp.state === 'RTS' && requests.length < this.#count && outstanding < DEPTH;
  }

  #post(side: LooseSide): void {
    const { random, service, profile } = this.#options;
    const { host, qp, requests } = side;
    const wrId = requests.length;
    const longest = service === 'UD' ? 4096 : profile.longest;
    const length = HEAD + random.between(0, random.chance(0.5) ? 200 : longest - HEAD);
    const lease = host.book.lease(length);
    const tag = random.next();
    fillPattern(lease.bytes, tag);
    new DataView(lease.bytes.buffer, lease.bytes.byteOffset).setUint32(0, wrId);
    const opcode = random.pick(['SEND', 'SEND_WITH_IMM'] as const);
    const signaled = random.chance(0.8) || wrId % DEPTH === DEPTH - 1 || wrId === this.#count - 1;
    const send: SimSend = { wrId, opcode, offset: 0, length, region: lease.region, signaled };
    if (opcode === 'SEND_WITH_IMM') send.immediate = wrId;
    requests.push({ send, lease, tag });
    qp.postSend(send);
  }

  #poll(side: LooseSide): void {
    const peer = this.sides[0] === side ? this.sides[1] : this.sides[0];
    for (const completion of side.qp.pollReceive()) this.#receive(side, peer, completion);
    for (const { wrId, status } of side.qp.pollSend()) {
      require(wrId >= side.done && wrId < side.requests.length, 'a request completed twice', { wrId });
      const right = status === 'SUCCESS' || [...side.mayFail, 'WR_FLUSH_ERR'].includes(status);
      require(right && (status === 'SUCCESS' || side.mayFail.length > 0), 'a request failed', {
        wrId,
        status,
      });
      for (; side.done <= wrId; side.done++) {
        const { send, lease } = side.requests[side.done];
        const skipped = side.done < wrId && send.signaled !== false;
        require(!skipped, 'a signaled request gave no completion', { wrId: side.done });
        side.host.book.release(lease, this.#options.network.now);
      }
    }
  }

  #receive(side: LooseSide, peer: LooseSide, completion: ModelCompletion): void {
    const { service, tally, inOrder } = this.#options;
    const { wrId, status, byteLen = 0, immediate } = completion;
    const bytes = side.inbox.take(wrId);
    if (status !== 'SUCCESS') {
      // An SRQ's receive whose message was given up (UC), or the queue pair was put into the error state.
      const given = status === 'REM_INV_REQ_ERR' && side.own === undefined;
      require(given || side.mayFail.length > 0, 'a receive failed', completion);
      return;
    }
    const head = service === 'UD' ? GRH_BYTES : 0;
    const message = bytes.subarray(head, byteLen);
    const index = new DataView(message.buffer, message.byteOffset).getUint32(0);
    const request = peer.requests[index];
    require(request !== undefined, 'a message arrived that nobody sent', completion);
    const { send, tag } = request;
    const whole =
      message.length === send.length &&
      matchPattern(message.subarray(HEAD), tag, HEAD) === send.length - HEAD &&
      immediate === send.immediate;
    require(whole, 'a message arrived damaged', completion);
    const last = side.arrived.at(-1) ?? -1;
    // Duplicates arrive twice, and late packets late: nothing checks PSNs of UD.
    require(!inOrder || index > last, 'a message arrived out of order or twice', { index, last });
    side.arrived.push(index);
    tally.add(`messages of ${service}`);
  }

  #end(): void {
    const { random, block } = this.#options;
    if (this.#ended || this.#ending === 'finish') return;
    const acting = this.sides.find(({ done, isClosed }) => !isClosed && done >= this.#endsAt);
    if (acting === undefined || acting.outstanding === 0) return;
    if (this.#blocks) {
      this.#blocks = false;
      block(acting.host);
      return;
    }
    this.#ended = true;
    this.#note(acting, 'ended');
    if (this.#ending === 'destroy' || this.#ending === 'reset') {
      this.#close(acting, this.#ending);
    } else if (this.#ending === 'fail') {
      acting.mayFail = ['WR_FLUSH_ERR'];
      acting.qp.fail();
    } else {
      acting.mayFail = ['LOC_PROT_ERR'];
      const { lease } = random.pick(acting.requests.slice(acting.done));
      acting.host.book.release(lease, this.#options.network.now);
    }
  }

  #note({ host, qp }: LooseSide, what: string): void {
    const { tally, network } = this.#options;
    const waits = host.device.waiting(qp.info.qpn) > 0;
    if (waits) tally.add('packets waited for the link when something ended');
    const flying = this.sides.some((side) => network.flyingTo(side.host.device, side.qp.info.qpn) > 0);
    if (waits || flying) tally.add(`queue pairs of ${this.#options.service} ${what} with packets in flight`);
  }

  #close(side: LooseSide, how: 'destroy' | 'reset'): void {
    const { host, qp } = side;
    const { now } = this.#options.network;
    side.isClosed = true;
    if (how === 'reset') qp.reset(0);
    host.device.destroyQp(qp);
    for (const { lease } of side.requests) host.book.release(lease, now);
    if (side.own !== undefined) host.book.release(side.own.lease, now);
  }
}
