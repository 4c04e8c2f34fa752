/** The work requests of a run: sends are made before it, receives posted by numbers, so posting allocates nothing. */
import type { AddressHandle, MemoryRegion, QueuePair, SendWr } from '@node-roce/verbs-api';
import type { Key } from '../dialogue/keys.ts';
import type { Plan } from '../plan.ts';
import type { Layout } from './layout.ts';

/** Q_Key of perftest's datagrams (`DEF_QKEY`). */
export const QKEY = 0x1111_1111;

/** A queue pair and its peer. */
export interface Side {
  readonly qp: QueuePair;
  remote: Key | undefined;
  /** Of UD: the way to the peer, its queue pair and Q_Key. */
  ud: { ah: AddressHandle; remoteQpn: number; remoteQkey: number } | undefined;
}

/** The number of a queue pair and the direction, as a request carries them in its `wrId`. */
const sendId = (index: number): number => 2 * index;
const receiveId = (index: number): number => 2 * index + 1;
export const isReceive = (wrId: number): boolean => (wrId & 1) === 1;
export const indexOf = (wrId: number): number => wrId >>> 1;

/** Send requests for messages of one size. */
export class SendRequests {
  readonly #sides: readonly Side[];
  /** By queue pair; of each position in the buffer two: without a completion, and with one. */
  readonly #requests: readonly (readonly SendWr[])[];
  readonly #positions: number;

  constructor(sides: readonly Side[], mr: MemoryRegion, layout: Layout, plan: Plan, size: number) {
    this.#sides = sides;
    this.#positions = plan.measure === 'bw' ? layout.positions(size) : 1;
    const step = layout.step(size);
    this.#requests = sides.map((side, index) =>
      Array.from({ length: 2 * this.#positions }, (_, i) => {
        const advance = (i >> 1) * step;
        return request(
          side,
          index,
          mr,
          layout.sendOffset(index) + advance,
          advance,
          (i & 1) === 1,
          plan,
          size,
        );
      }),
    );
  }

  /** Posts message `number` (0, 1, …) of a queue pair. */
  post(index: number, number: number, signaled: boolean): void {
    const position = number % this.#positions;
    this.#sides[index].qp.postSend(this.#requests[index][2 * position + (signaled ? 1 : 0)]);
  }
}

function request(
  { remote, ud }: Side,
  index: number,
  mr: MemoryRegion,
  offset: number,
  advance: number,
  signaled: boolean,
  { verb, writeWithImm, atomic, inline }: Plan,
  size: number,
): SendWr {
  const common = { wrId: sendId(index), signaled, sgList: [{ mr, offset, length: size }] };
  const isInline = inline > 0 && size <= inline ? ({ inline: true } as const) : {};
  if (verb === 'send') return { ...common, ...isInline, opcode: 'SEND', ...(ud ? { ud } : {}) };
  const there = { addr: remote!.vaddr + BigInt(advance), rkey: remote!.rkey };
  if (verb === 'read') return { ...common, opcode: 'RDMA_READ', remote: there };
  if (verb === 'atomic') {
    return atomic === 'FETCH_AND_ADD'
      ? { ...common, opcode: 'ATOMIC_FETCH_AND_ADD', remote: there, compareAdd: 1 }
      : { ...common, opcode: 'ATOMIC_CMP_AND_SWP', remote: there, compareAdd: 0, swap: 0 };
  }
  return writeWithImm
    ? { ...common, ...isInline, opcode: 'RDMA_WRITE_WITH_IMM', remote: there, immData: 0 }
    : { ...common, ...isInline, opcode: 'RDMA_WRITE', remote: there };
}

/** Receives for messages of one size. */
export class ReceiveRequests {
  readonly #sides: readonly Side[];
  readonly #mr: MemoryRegion;
  /** By queue pair: where the bytes of the first position lie. */
  readonly #offsets: readonly number[];
  /** Bytes from one position to the next. */
  readonly #step: number;
  readonly #positions: number;
  readonly #depth: number;
  /** Of each of them: the message, and the GRH of a datagram. */
  readonly bytes: number;
  readonly #posted: Float64Array;
  /** Messages that a queue pair is to receive. */
  readonly #most: number;

  constructor(sides: readonly Side[], mr: MemoryRegion, layout: Layout, plan: Plan, size: number) {
    this.#sides = sides;
    this.#depth = plan.rxDepth;
    this.#most = plan.duration === undefined ? plan.iters : Number.POSITIVE_INFINITY;
    this.#posted = new Float64Array(sides.length);
    const length = size + layout.headRoom;
    this.bytes = length;
    this.#positions = plan.measure === 'bw' ? layout.positions(length) : 1;
    this.#mr = mr;
    this.#step = layout.step(length);
    this.#offsets = sides.map((_, index) => layout.receiveOffset(index));
  }

  /** Posts the first receives of all queue pairs. */
  fill(): void {
    for (let index = 0; index < this.#sides.length; index++) {
      for (let i = 0; i < this.#depth; i++) this.#post(index);
    }
  }

  /** Posts a receive in the place of one that was used, unless there are enough for all messages. */
  replace(index: number): void {
    if (this.#posted[index] < this.#most) this.#post(index);
  }

  #post(index: number): void {
    const position = this.#posted[index]++ % this.#positions;
    const offset = this.#offsets[index] + position * this.#step;
    this.#sides[index].qp.postRecvOf(this.#mr, offset, this.bytes, receiveId(index));
  }
}
