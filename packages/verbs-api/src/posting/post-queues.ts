/** The queues of a queue pair as programs post to them. */
import {
  invalid,
  QP_STATES,
  type QpAttr,
  type QpCap,
  type QpCreated,
  QpStateCode,
  type QpType,
  Ring,
  RoceError,
} from '@node-roce/transport';
import { closedError, type Engine } from '../engine/engine.ts';
import type { MemoryRegion } from '../memory-region.ts';
import type { MemoryWindow } from '../memory-window.ts';
import { checkCall } from '../option-types.ts';
import { ANY, BOOLEAN, described } from '../options.ts';
import { recvOf, sendOf, writeRecvNumbers, writeSendNumbers } from './by-numbers.ts';
import { copyEntries, type PreparedEntries, PreparedSends, writeEntries } from './prepared.ts';
import type { AnySendWr, MwRange, RecvWr, SendWr } from './send-wr.ts';
import {
  checkRoom,
  type FindRegion,
  fullError,
  nestedPost,
  postReceives,
  writeBindRequest,
  writeRemoteSrqn,
  writeSend,
} from './work-request.ts';
import { XRC_NAMES_BY_OPCODE } from './wr-names.ts';

/** The queues as messages name them, before the number. */
const SENDS = 'send queue of QP';
const RECEIVES = 'receive queue of QP';

export interface PostQueuesInit {
  engine: Engine;
  type: QpType;
  created: QpCreated;
  find: FindRegion;
  /** Receives are posted there, if it is not undefined. */
  srq: unknown;
}

/** The send queue and the receive queue: rings and their sizes, and whether a request is being written. */
export class PostQueues {
  /** The queue pair is gone. */
  destroyed = false;
  readonly #engine: Engine;
  readonly #qpNum: number;
  readonly #find: FindRegion;
  readonly #isDatagram: boolean;
  readonly #isXrc: boolean;
  readonly #hasReceives: boolean;
  /** Its SENDs need no more than a part of a region: no destination, no SRQ of the peer. */
  readonly #isPlain: boolean;
  #sq: Ring;
  #rq: Ring;
  #cap: Readonly<QpCap>;
  /** The sizes that posting keeps to: less than `cap` while the queues get smaller. */
  #limits: Readonly<QpCap>;
  /** A request is being written. Its getters are the program's: they may call anything but a post to the same queue. */
  #sending = false;
  #receiving = false;

  constructor({ engine, type, created, find, srq }: PostQueuesInit) {
    this.#engine = engine;
    this.#qpNum = created.qpn;
    this.#find = find;
    this.#isDatagram = type === 'UD' || type === 'GSI';
    this.#isXrc = type === 'XRC_INI';
    this.#hasReceives = srq === undefined && !this.#isXrc;
    this.#isPlain = !this.#isDatagram && !this.#isXrc;
    this.#sq = Ring.of(created.sendQueue);
    this.#rq = Ring.of(created.recvQueue);
    this.#cap = this.#limits = created.cap;
  }

  get cap(): Readonly<QpCap> {
    return this.#cap;
  }

  /** The code of the state, as the engine last published it. */
  get state(): number {
    return this.#sq.state;
  }

  get sendPending(): number {
    return this.#sq.used;
  }

  get recvPending(): number {
    return this.#rq.used;
  }

  /** Whether the caller is a getter of a request: in the next microtask that is written. */
  get isWriting(): boolean {
    return this.#sending || this.#receiving;
  }

  /** Whether it takes requests now. */
  #takesSends(ring: Ring): boolean {
    return !this.destroyed && !this.#engine.closed && !this.#sending && ring.state >= QpStateCode.RTS;
  }

  #takesReceives(ring: Ring): boolean {
    return !this.destroyed && !this.#engine.closed && !this.#receiving && ring.state !== QpStateCode.RESET;
  }

  /** The send queue, to write requests into; has to be left with `#sending = false`. */
  #enter(call: string): Ring {
    const ring = this.#checkedSends(call);
    this.#sending = true;
    return ring;
  }

  #checkedSends(call: string): Ring {
    const ring = this.#sq;
    if (this.#takesSends(ring)) return ring;
    throw this.#wrongState(call, this.#sending ? SENDS : undefined, 'RTS, SQD, SQE or ERR');
  }

  #wakeSends(ring: Ring): void {
    if (ring.wake()) this.#engine.ring(this.#qpNum, false);
  }

  /** As `QueuePair.postSend`. */
  postSend(wr: SendWr | readonly SendWr[]): void {
    const ring = this.#enter('send');
    try {
      const first = ring.producer;
      if (Array.isArray(wr)) this.#postList(ring, first, wr);
      else {
        this.#write(ring, first, wr as SendWr);
        this.#publish(ring, first, 1);
      }
    } finally {
      this.#sending = false;
    }
  }

  /** As `QueuePair.postSendOf`. */
  postSendOf(
    mr: MemoryRegion,
    offset: number,
    length: number | undefined,
    flags: number,
    wrId: number | bigint,
  ): void {
    const ring = this.#sq;
    const { maxSendWr, maxSendSge } = this.#limits;
    if (
      this.#isPlain &&
      maxSendSge > 0 &&
      this.#takesSends(ring) &&
      writeSendNumbers(ring, mr, offset, length, flags, wrId, maxSendWr)
    ) {
      if (ring.post()) this.#engine.ring(this.#qpNum, false);
    } else this.postSend(sendOf(mr, offset, length, flags, wrId));
  }

  /** As `QueuePair.prepare`. */
  prepare(list: readonly SendWr[]): PreparedSends {
    if (this.#engine.closed || this.destroyed) this.#checkedSends('send');
    if (!Array.isArray(list)) throw invalid('list', described(list), 'a list of send requests');
    const to = this.#sq;
    const count = list.length;
    const entries = writeEntries(count, to.stride, (ring, i) => {
      try {
        const wr = list[i];
        if (wr?.opcode === 'BIND_MW')
          throw invalid('opcode', 'BIND_MW gives its window another key each time', 'postSend');
        this.#writeTo(ring, i, wr);
      } catch (error) {
        throw Object.assign(error as Error, { index: i });
      }
    });
    return new PreparedSends(count, () => this.#postPrepared(entries, to));
  }

  /** @param to the queue that the list was prepared for */
  #postPrepared(entries: PreparedEntries, to: Ring): void {
    const ring = this.#checkedSends('send');
    if (ring !== to)
      throw new RoceError(
        'ERR_ROCE_WRONG_STATE',
        `the queues of QP ${this.#qpNum} were resized after the list was prepared`,
        { errno: 'EINVAL', attribute: 'cap', expected: 'a list that is prepared again' },
      );
    const { maxSendWr, maxSendSge, maxInlineData } = this.#limits;
    const { count, elements, inlineBytes } = entries;
    // Only while the queues are resized: the list kept to the limits before.
    if (elements > maxSendSge || inlineBytes > maxInlineData) throw this.#resizing();
    const first = ring.producer;
    if (count > 0 && !ring.hasRoom((first + count - 1) | 0, maxSendWr)) {
      const index = Math.max(0, maxSendWr - ring.used);
      throw Object.assign(fullError(maxSendWr, SENDS, this.#qpNum), { index });
    }
    copyEntries(ring, first, entries);
    this.#publish(ring, first, count);
  }

  /** Requests before a bad one are posted. */
  #postList(ring: Ring, first: number, list: readonly SendWr[]): void {
    let done = 0;
    try {
      for (; done < list.length; done++) this.#write(ring, (first + done) | 0, list[done]);
    } catch (error) {
      throw Object.assign(error as Error, { index: done });
    } finally {
      this.#publish(ring, first, done);
    }
  }

  /** As `QueuePair.postBatch`. */
  postBatch(list: readonly SendWr[]): void {
    const ring = this.#enter('send');
    try {
      if (!Array.isArray(list)) throw invalid('list', described(list), 'a list of send requests');
      this.#postAll(ring, ring.producer, list);
    } finally {
      this.#sending = false;
    }
  }

  /** Nothing is posted where one is bad. */
  #postAll(ring: Ring, first: number, list: readonly SendWr[]): void {
    // Windows and their keys before, of a list that has any: a window gets its new key as its request is written.
    let bound: { mw: MemoryWindow; rkey: number }[] | undefined;
    let done = 0;
    try {
      for (; done < list.length; done++) {
        const wr = list[done];
        const mw = wr?.opcode === 'BIND_MW' ? wr.bind?.mw : undefined;
        const rkey = mw?.rkey;
        this.#write(ring, (first + done) | 0, wr);
        // What is no window was refused.
        if (mw === undefined || rkey === undefined) continue;
        bound ??= [];
        bound.push({ mw, rkey });
      }
      this.#publish(ring, first, done);
    } catch (error) {
      // Last first: a window may be bound more than once.
      for (const { mw, rkey } of bound?.reverse() ?? []) mw.rkey = rkey;
      throw Object.assign(error as Error, { index: done });
    }
  }

  /** As `QueuePair.bindMw`. */
  bind(
    mw: MemoryWindow,
    range: MwRange | undefined,
    options: { wrId?: number | bigint; signaled?: boolean; fence?: boolean },
  ): number {
    if (mw?.type !== 1) {
      const what = mw?.type === 2 ? 'a window of type 2' : described(mw);
      throw invalid('mw', what, 'a window of type 1; type 2 is posted as BIND_MW');
    }
    checkCall(options, { wrId: ANY, signaled: BOOLEAN, fence: BOOLEAN });
    const ring = this.#enter('bind');
    try {
      const index = ring.producer;
      checkRoom(ring, index, this.#limits.maxSendWr, SENDS, this.#qpNum);
      writeBindRequest(ring, index, mw, range, options);
      this.#publish(ring, index, 1);
    } finally {
      this.#sending = false;
    }
    return mw.rkey;
  }

  #write(ring: Ring, index: number, wr: SendWr): void {
    checkRoom(ring, index, this.#limits.maxSendWr, SENDS, this.#qpNum);
    this.#writeTo(ring, index, wr);
  }

  #writeTo(ring: Ring, index: number, wr: SendWr): void {
    const { maxSendSge, maxInlineData } = this.#limits;
    const any = wr as AnySendWr;
    if (!this.#isXrc) {
      writeSend(ring, index, any, maxSendSge, maxInlineData, this.#find, this.#isDatagram);
      return;
    }
    writeSend(ring, index, any, maxSendSge, maxInlineData, this.#find, false, XRC_NAMES_BY_OPCODE);
    writeRemoteSrqn(ring, index, any);
  }

  /** Nothing is published of no entries: a queue that the engine posts to (rendezvous) may have moved on. */
  #publish(ring: Ring, first: number, count: number): void {
    if (count === 0) return;
    ring.publish((first + count) | 0);
    this.#wakeSends(ring);
  }

  /** As `QueuePair.postRecv`, of a queue pair with a receive queue of its own. */
  postRecv(wr: RecvWr | readonly RecvWr[]): void {
    if (this.#isXrc) throw invalid('qp', 'an XRC_INI queue pair receives nothing', 'the SRQ of a domain');
    const ring = this.#rq;
    if (!this.#takesReceives(ring))
      throw this.#wrongState('receive', this.#receiving ? RECEIVES : undefined, 'any state but RESET');
    this.#receiving = true;
    const first = ring.producer;
    try {
      const { maxRecvWr, maxRecvSge } = this.#limits;
      postReceives(ring, wr, maxRecvWr, maxRecvSge, this.#find, RECEIVES, this.#qpNum);
    } finally {
      this.#receiving = false;
      if (ring.producer !== first && ring.wake()) this.#engine.ring(this.#qpNum, true);
    }
  }

  /** As `QueuePair.postRecvOf`, of a queue pair with a receive queue of its own. */
  postRecvOf(mr: MemoryRegion, offset: number, length: number | undefined, wrId: number | bigint): void {
    const ring = this.#rq;
    const { maxRecvWr, maxRecvSge } = this.#limits;
    if (
      !this.#isXrc &&
      this.#takesReceives(ring) &&
      writeRecvNumbers(ring, mr, offset, length, wrId, maxRecvWr, maxRecvSge)
    ) {
      if (ring.post()) this.#engine.ring(this.#qpNum, true);
    } else this.postRecv(recvOf(mr, offset, length, wrId));
  }

  /** @param nested the queue that a request is being written to */
  #wrongState(call: string, nested: string | undefined, expected: string): RoceError {
    if (this.#engine.closed) return closedError();
    if (nested !== undefined) return nestedPost(nested, this.#qpNum);
    const state = this.destroyed ? 'destroyed' : `in ${QP_STATES[this.state]}`;
    return new RoceError('ERR_ROCE_WRONG_STATE', `can't post a ${call}: QP ${this.#qpNum} is ${state}`, {
      errno: 'EINVAL',
      attribute: 'qpState',
      expected,
    });
  }

  #resizing(): RoceError {
    return new RoceError('ERR_ROCE_BUSY', `cap: the queues of QP ${this.#qpNum} are still being resized`, {
      errno: 'EBUSY',
      attribute: 'cap',
    });
  }

  /** Until the program hears of the new rings, it posts to the old ones, and no more than fits into both. */
  async resize(attr: QpAttr, asked: QpCap): Promise<void> {
    if (this.#limits !== this.#cap) throw this.#resizing();
    const names = Object.keys(this.#cap) as (keyof QpCap)[];
    this.#limits = Object.fromEntries(
      names.map((name) => [name, Math.min(this.#cap[name], asked[name] ?? 0)]),
    ) as unknown as QpCap;
    try {
      const { cap, sendQueue, recvQueue } = (await this.#engine.call('modifyQp', this.#qpNum, attr))!;
      const sq = Ring.of(sendQueue);
      this.#sq.moveTo(sq);
      this.#sq = sq;
      if (this.#hasReceives) {
        const rq = Ring.of(recvQueue);
        this.#rq.moveTo(rq);
        this.#rq = rq;
      }
      this.#cap = cap;
      // The engine looks, and takes over what was posted before.
      await this.#engine.call('modifyQp', this.#qpNum, {});
    } finally {
      this.#limits = this.#cap;
    }
  }
}
