/** Requests of a queue pair that resolve with their completions. */
import type { CompletionQueue } from '../completion-queue.ts';
import { checkCall } from '../option-types.ts';
import { BOOLEAN, INTEGER, OBJECT, SIGNAL } from '../options.ts';
import type { WorkCompletion } from '../work-completion.ts';
import type { Datagram, RecvWr, Remote, SendWr, SgElement } from './send-wr.ts';
import type { FindRegion } from './work-request.ts';

/** An atomic's own part of its work request. */
export type AtomicOperands =
  | { opcode: 'ATOMIC_FETCH_AND_ADD'; compareAdd: bigint | number }
  | { opcode: 'ATOMIC_CMP_AND_SWP'; compareAdd: bigint | number; swap: bigint | number };

/** Options of each awaited request. */
export interface AwaitOptions {
  /** Rejects the promise; the request goes on. */
  signal?: AbortSignal;
  /** Wait until READs and atomics before it are done. */
  fence?: boolean;
  /** XRC_INI: number of the SRQ that it is for. */
  remoteSrqn?: number;
}

/** Options of `write`. */
export interface AwaitedWrite extends AwaitOptions {
  /** 32 bits, read by the peer in its completion; the peer has to post a receive. */
  immData?: number;
}

/** Options of `send`. */
export interface AwaitedSend extends AwaitedWrite {
  /** The peer's key to invalidate. */
  invalidateRkey?: number;
  /** Raise the event of a completion queue that waits for solicited completions only. */
  solicited?: boolean;
  /** UD and GSI: where it goes. */
  ud?: Datagram;
}

const AWAITED = { signal: SIGNAL, fence: BOOLEAN, remoteSrqn: INTEGER };
const AWAITED_WRITE = { ...AWAITED, immData: INTEGER };
const AWAITED_SEND = { ...AWAITED_WRITE, invalidateRkey: INTEGER, solicited: BOOLEAN, ud: OBJECT };

const listOf = (data: SgElement | readonly SgElement[]): readonly SgElement[] =>
  Array.isArray(data) ? data : [data as SgElement];

/** The queue pair that they are posted to. */
interface PostedTo {
  readonly qpNum: number;
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  postSend(wr: SendWr): void;
  postRecv(wr: RecvWr): void;
}

/** An operation by its own members, without those of each request. */
type Operation = { opcode: SendWr['opcode'] } & Record<string, unknown>;

/** Posts requests and waits for them; each rejects as `QueuePair.send`. */
export class AwaitedRequests {
  readonly #qp: PostedTo;
  readonly #find: FindRegion;

  constructor(qp: PostedTo, find: FindRegion) {
    this.#qp = qp;
    this.#find = find;
  }

  async send(data: SgElement | readonly SgElement[], options: AwaitedSend): Promise<WorkCompletion> {
    checkCall(options, AWAITED_SEND);
    const { immData, invalidateRkey, ...more } = options;
    if (immData !== undefined)
      return this.#post(more, { opcode: 'SEND_WITH_IMM', immData, ...this.#message(data) });
    if (invalidateRkey !== undefined)
      return this.#post(more, { opcode: 'SEND_WITH_INV', invalidateRkey, ...this.#message(data) });
    return this.#post(more, { opcode: 'SEND', ...this.#message(data) });
  }

  async write(
    data: SgElement | readonly SgElement[],
    remote: Remote,
    options: AwaitedWrite,
  ): Promise<WorkCompletion> {
    checkCall(options, AWAITED_WRITE);
    const { immData, ...more } = options;
    const message = { ...this.#message(data), remote };
    if (immData === undefined) return this.#post(more, { opcode: 'RDMA_WRITE', ...message });
    return this.#post(more, { opcode: 'RDMA_WRITE_WITH_IMM', immData, ...message });
  }

  read(
    into: SgElement | readonly SgElement[],
    remote: Remote,
    options: AwaitOptions,
  ): Promise<WorkCompletion> {
    return this.post(options, { opcode: 'RDMA_READ', sgList: listOf(into), remote });
  }

  atomic(
    request: AtomicOperands,
    into: SgElement,
    remote: Remote,
    options: AwaitOptions,
  ): Promise<WorkCompletion> {
    return this.post(options, { ...request, sgList: listOf(into), remote });
  }

  async atomicWrite(data: SgElement, remote: Remote, options: AwaitOptions): Promise<WorkCompletion> {
    checkCall(options, AWAITED);
    return this.#post(options, { opcode: 'ATOMIC_WRITE', ...this.#message(data), remote });
  }

  /** An operation that has no options of its own. */
  async post(options: AwaitOptions, operation: Operation): Promise<WorkCompletion> {
    checkCall(options, AWAITED);
    return this.#post(options, operation);
  }

  async receive(
    into: SgElement | readonly SgElement[],
    options: { signal?: AbortSignal },
  ): Promise<WorkCompletion> {
    checkCall(options, { signal: SIGNAL });
    const { qpNum, recvCq } = this.#qp;
    return recvCq.observer().post(qpNum, options.signal, (wrId) => {
      this.#qp.postRecv({ wrId, sgList: listOf(into) });
    });
  }

  #post({ signal, ...more }: AwaitOptions, operation: Operation): Promise<WorkCompletion> {
    const { qpNum, sendCq } = this.#qp;
    return sendCq.observer().post(qpNum, signal, (wrId) => {
      this.#qp.postSend({ ...operation, ...more, wrId, signaled: true } as SendWr);
    });
  }

  /** Registered memory as it is; other bytes inline. */
  #message(data: SgElement | readonly SgElement[]): { sgList: readonly SgElement[]; inline?: true } {
    const sgList = listOf(data);
    const isForeign = (element: SgElement) => element instanceof Uint8Array && !this.#isRegistered(element);
    return sgList.length > 0 && sgList.every(isForeign) ? { sgList, inline: true } : { sgList };
  }

  #isRegistered(view: Uint8Array): boolean {
    try {
      this.#find(view);
      return true;
    } catch {
      return false;
    }
  }
}
