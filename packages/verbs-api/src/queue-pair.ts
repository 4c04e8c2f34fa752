/** Queue pairs: posting, states, and going from RESET to RTS in one call. */
import {
  Access,
  QP_STATES,
  type QpAttr,
  type QpCap,
  type QpCreated,
  type QpQuery,
  type QpState,
  QpStateCode,
  type QpType,
  Ring,
  RoceError,
} from '@node-roce/transport';
import type { CompletionQueue } from './completion-queue.ts';
import { type ConnectionData, type ConnectOptions, connectAttributes, defaultGid } from './connection.ts';
import { closedError, type Engine } from './engine.ts';
import { type FindRegion, type RecvWr, type SendWr, writeRecv, writeSend } from './work-request.ts';

export interface QueuePairParts {
  engine: Engine;
  type: QpType;
  created: QpCreated;
  sendCq: CompletionQueue;
  recvCq: CompletionQueue;
  find: FindRegion;
  random: () => number;
}

/** A queue pair (`struct ibv_qp`). */
export class QueuePair implements AsyncDisposable {
  readonly qpNum: number;
  readonly type: QpType;
  /** What was created: at least what was asked for. */
  readonly cap: Readonly<QpCap>;
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  /** First PSN of this side, drawn at random; `connect` uses it, `modify` may use another. */
  readonly initialPsn: number;
  readonly #engine: Engine;
  readonly #sq: Ring;
  readonly #rq: Ring;
  readonly #find: FindRegion;
  #gidIndex: number | undefined;
  #destroyed = false;

  constructor(parts: QueuePairParts) {
    const { created } = parts;
    this.#engine = parts.engine;
    this.qpNum = created.qpn;
    this.type = parts.type;
    this.cap = created.cap;
    this.sendCq = parts.sendCq;
    this.recvCq = parts.recvCq;
    this.initialPsn = parts.random() & 0xff_ffff;
    this.#sq = new Ring(created.sendQueue);
    this.#rq = new Ring(created.recvQueue);
    this.#find = parts.find;
  }

  /** The state, as the engine last published it. */
  get state(): QpState {
    return QP_STATES[this.#sq.state];
  }

  /** Send requests that are posted and not complete. */
  get sendPending(): number {
    return this.#sq.used;
  }

  /** Receive requests that are posted and not used. */
  get recvPending(): number {
    return this.#rq.used;
  }

  /**
   * ibv_post_send(3): one request or a list. Synchronous: what it refuses, it throws for at once.
   *
   * Throws EINVAL in RESET, INIT or RTR or for a bad request, ENOMEM when the queue is full. Of a list,
   * what stands before the bad one is posted; the error's `index` says which it was.
   */
  postSend(wr: SendWr | readonly SendWr[]): void {
    const state = this.#sq.state;
    if (this.#destroyed || this.#engine.closed || state < QpStateCode.RTS)
      throw this.#wrongState('send', 'RTS, SQD, SQE or ERR');
    const ring = this.#sq;
    const first = ring.producer;
    if (!Array.isArray(wr)) {
      this.#checkRoom(ring, first, 'send', this.cap.maxSendWr);
      writeSend(ring, first, wr as SendWr, this.cap.maxSendSge, this.cap.maxInlineData, this.#find);
      ring.publish((first + 1) | 0);
      if (ring.wakes()) this.#engine.ring(this.qpNum, false);
      return;
    }
    const list = wr as readonly SendWr[];
    let done = 0;
    try {
      for (; done < list.length; done++) {
        const index = (first + done) | 0;
        this.#checkRoom(ring, index, 'send', this.cap.maxSendWr);
        writeSend(ring, index, list[done], this.cap.maxSendSge, this.cap.maxInlineData, this.#find);
      }
    } catch (error) {
      throw Object.assign(error as Error, { index: done });
    } finally {
      ring.publish((first + done) | 0);
      if (done > 0 && ring.wakes()) this.#engine.ring(this.qpNum, false);
    }
  }

  /** ibv_post_recv(3): one request or a list, as `postSend`; EINVAL in RESET. */
  postRecv(wr: RecvWr | readonly RecvWr[]): void {
    if (this.#destroyed || this.#engine.closed || this.#rq.state === QpStateCode.RESET) {
      throw this.#wrongState('receive', 'any state but RESET');
    }
    const ring = this.#rq;
    const list = Array.isArray(wr) ? (wr as readonly RecvWr[]) : undefined;
    const count = list ? list.length : 1;
    const first = ring.producer;
    let done = 0;
    try {
      for (; done < count; done++) {
        const index = (first + done) | 0;
        this.#checkRoom(ring, index, 'receive', this.cap.maxRecvWr);
        writeRecv(ring, index, list ? list[done] : (wr as RecvWr), this.cap.maxRecvSge, this.#find);
      }
    } catch (error) {
      throw list ? Object.assign(error as Error, { index: done }) : error;
    } finally {
      ring.publish((first + done) | 0);
      if (done > 0 && ring.wakes()) this.#engine.ring(this.qpNum, true);
    }
  }

  #checkRoom(ring: Ring, index: number, which: string, capacity: number): void {
    if (((index - ring.consumer) | 0) < capacity) return;
    throw new RoceError(
      'ERR_ROCE_QUEUE_FULL',
      `the ${which} queue of QP ${this.qpNum} holds ${capacity} requests`,
      {
        errno: 'ENOMEM',
      },
    );
  }

  #wrongState(which: string, expected: string): RoceError {
    if (this.#engine.closed) return closedError();
    const state = this.#destroyed ? 'destroyed' : `in ${this.state}`;
    return new RoceError('ERR_ROCE_WRONG_STATE', `can't post a ${which}: QP ${this.qpNum} is ${state}`, {
      errno: 'EINVAL',
      attribute: 'qpState',
      expected,
    });
  }

  /**
   * ibv_modify_qp(3). The attributes that are present are the mask; an error names the wrong one, and then
   * nothing was changed.
   */
  modify(attr: QpAttr): Promise<void> {
    return this.#engine.call('modifyQp', this.qpNum, attr);
  }

  /** ibv_query_qp(3): what is valid in the state the queue pair is in. */
  query(): Promise<QpQuery> {
    return this.#engine.call('queryQp', this.qpNum);
  }

  /** Counts of this queue pair: packets, retransmissions, NAKs. */
  counters(): Promise<Record<string, number>> {
    return this.#engine.call('qpCounters', this.qpNum) as Promise<unknown> as Promise<Record<string, number>>;
  }

  /** RESET to INIT, so that receives can be posted before the peer is known. */
  async toInit({ access = REMOTE_ACCESS }: { access?: number } = {}): Promise<void> {
    await this.modify({ qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: access });
  }

  /**
   * What the peer has to know: to be carried over by whatever connects the two programs.
   * `gidIndex`: the first GID that is not link-local unless given.
   */
  connectionData({ gidIndex = defaultGid(this.#engine.facts.gids) } = {}): ConnectionData {
    const entry = this.#engine.facts.gids[gidIndex];
    if (!entry) {
      throw new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `gidIndex: no GID ${gidIndex}`, {
        errno: 'EINVAL',
        attribute: 'gidIndex',
        expected: `0 … ${this.#engine.facts.gids.length - 1}`,
      });
    }
    this.#gidIndex = gidIndex;
    return {
      qpNum: this.qpNum,
      psn: this.initialPsn,
      gid: entry.address,
      mtu: this.#engine.facts.activeMtu,
    };
  }

  /** Takes the queue pair from RESET (or INIT) to RTS, connected to that peer. */
  async connect(remote: ConnectionData, options: ConnectOptions = {}): Promise<void> {
    const local = { initialPsn: this.initialPsn, gidIndex: this.#gidIndex };
    const { init, rtr, rts } = connectAttributes(local, remote, options, this.#engine.facts, this.type);
    if (this.state === 'RESET') await this.modify(init);
    await this.modify(rtr);
    await this.modify(rts);
  }

  /** ibv_destroy_qp(3): what is outstanding is discarded. */
  async close(): Promise<void> {
    if (this.#destroyed || this.#engine.closed) return;
    this.#destroyed = true;
    await this.#engine.call('destroyQp', this.qpNum);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

export const REMOTE_ACCESS = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;
