/** Requests of a queue pair that resolve with their completions. */
import type { CompletionQueue } from '../completion-queue.ts';
import { checkCall } from '../option-types.ts';
import { BOOLEAN, INTEGER, OBJECT, SIGNAL } from '../options.ts';
import type { WorkCompletion } from '../work-completion.ts';
import type { Datagram, FlushInit, RecvWr, Remote, SendWr, SgElement } from './send-wr.ts';
import type { FindRegion } from './work-request.ts';

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

/** An operation by its own members, without those of each request. */
type Operation = { opcode: SendWr['opcode'] } & Record<string, unknown>;

/** The requests of a queue pair that resolve with their completions. */
export abstract class AwaitedRequests {
  /** As of `QueuePair`. */
  abstract readonly qpNum: number;
  /** Completions of `send`, `write`, `read` and all other requests but `receive`. */
  abstract readonly sendCq: CompletionQueue;
  /** Completions of `receive`. */
  abstract readonly recvCq: CompletionQueue;
  /** As of `QueuePair`. */
  abstract postSend(wr: SendWr | readonly SendWr[]): void;
  /** As of `QueuePair`. */
  abstract postRecv(wr: RecvWr | readonly RecvWr[]): void;
  readonly #find: FindRegion;

  constructor(find: FindRegion) {
    this.#find = find;
  }

  /**
   * Posts a SEND (or, with `immData` or `invalidateRkey`, its variant) and resolves with the completion. Bytes that lie in
   * no region are copied inline, if they are no more than `cap.maxInlineData`.
   *
   * Rejects as `postSend`; with ERR_ROCE_COMPLETION, whose `attribute` is the status, if the request fails; with the
   * signal's reason, which does not recall the request. Completions of awaited requests do not show in `poll`.
   */
  async send(data: SgElement | readonly SgElement[], options: AwaitedSend = {}): Promise<WorkCompletion> {
    checkCall(options, AWAITED_SEND);
    const { immData, invalidateRkey, ...more } = options;
    if (immData !== undefined)
      return this.#post(more, { opcode: 'SEND_WITH_IMM', immData, ...this.#message(data) });
    if (invalidateRkey !== undefined)
      return this.#post(more, { opcode: 'SEND_WITH_INV', invalidateRkey, ...this.#message(data) });
    return this.#post(more, { opcode: 'SEND', ...this.#message(data) });
  }

  /** Posts an RDMA WRITE (with `immData`, RDMA_WRITE_WITH_IMM) and resolves with the completion; as `send`. */
  async write(
    data: SgElement | readonly SgElement[],
    remote: Remote,
    options: AwaitedWrite = {},
  ): Promise<WorkCompletion> {
    checkCall(options, AWAITED_WRITE);
    const { immData, ...more } = options;
    const message = { ...this.#message(data), remote };
    if (immData === undefined) return this.#post(more, { opcode: 'RDMA_WRITE', ...message });
    return this.#post(more, { opcode: 'RDMA_WRITE_WITH_IMM', immData, ...message });
  }

  /** Posts an RDMA READ into registered memory and resolves with the completion; as `send`. */
  read(
    into: SgElement | readonly SgElement[],
    remote: Remote,
    options: AwaitOptions = {},
  ): Promise<WorkCompletion> {
    return this.#checked(options, { opcode: 'RDMA_READ', sgList: listOf(into), remote });
  }

  /**
   * Adds to a 64-bit word of the peer and resolves with the completion; as `send`.
   *
   * @param into 8 registered bytes, which receive the value before, in the byte order of this host
   */
  fetchAdd(
    into: SgElement,
    remote: Remote,
    add: bigint | number,
    options: AwaitOptions = {},
  ): Promise<WorkCompletion> {
    const operands = { compareAdd: add };
    return this.#checked(options, {
      opcode: 'ATOMIC_FETCH_AND_ADD',
      ...operands,
      sgList: listOf(into),
      remote,
    });
  }

  /** Replaces a 64-bit word of the peer by `swap` if it equals `compare`; otherwise as `fetchAdd`. */
  compareSwap(
    into: SgElement,
    remote: Remote,
    compare: bigint | number,
    swap: bigint | number,
    options: AwaitOptions = {},
  ): Promise<WorkCompletion> {
    const operands = { compareAdd: compare, swap };
    return this.#checked(options, {
      opcode: 'ATOMIC_CMP_AND_SWP',
      ...operands,
      sgList: listOf(into),
      remote,
    });
  }

  /**
   * Posts a FLUSH of the data written to a range of the peer's memory and resolves with the completion, once it is there; as
   * `send`. The peer's queue pair and region need the right (`flushGlobal`).
   */
  flush(remote: Remote, flush: FlushInit, options: AwaitOptions = {}): Promise<WorkCompletion> {
    return this.#checked(options, { opcode: 'FLUSH', remote, flush });
  }

  /** Writes 8 bytes to an address of the peer that is divisible by 8, in one piece, and resolves with the completion; as `send`. */
  async atomicWrite(data: SgElement, remote: Remote, options: AwaitOptions = {}): Promise<WorkCompletion> {
    checkCall(options, AWAITED);
    return this.#post(options, { opcode: 'ATOMIC_WRITE', ...this.#message(data), remote });
  }

  /** Posts a receive and resolves with its completion; as `send`. Not with a shared receive queue. */
  async receive(
    into: SgElement | readonly SgElement[],
    options: { signal?: AbortSignal } = {},
  ): Promise<WorkCompletion> {
    checkCall(options, { signal: SIGNAL });
    return this.recvCq.observer().post(this.qpNum, options.signal, (wrId) => {
      this.postRecv({ wrId, sgList: listOf(into) });
    });
  }

  /** An operation that has no options of its own. */
  async #checked(options: AwaitOptions, operation: Operation): Promise<WorkCompletion> {
    checkCall(options, AWAITED);
    return this.#post(options, operation);
  }

  #post({ signal, ...more }: AwaitOptions, operation: Operation): Promise<WorkCompletion> {
    return this.sendCq.observer().post(this.qpNum, signal, (wrId) => {
      this.postSend({ ...operation, ...more, wrId, signaled: true } as SendWr);
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
