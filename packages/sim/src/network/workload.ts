/**
 * A mixed workload between two endpoints, in both directions at once, with everything that must come of
 * it known beforehand: the order and contents of what is received, every byte read, every atomic's
 * answer, every completion, and the memory at the end.
 */

import type { Random } from '@node-roce/link';
import { readU64, writeU64 } from '../model/memory.ts';
import type { ModelCompletion, ModelOpcode } from '../model/work.ts';
import type { Endpoint, SimSend } from './endpoint.ts';

/** Longest message, bytes. */
export const LONGEST = 6000;
const SLOT = 6144;
/** Requests a side has posted and not seen completed. */
export const DEPTH = 8;
const RECEIVES = 10;

// The arena of each side. The peer writes `WRITTEN` and `ATOMIC`, reads `WRITTEN` and `SOURCE`.
const SOURCE = { at: 0, bytes: 65_536 };
const RECEIVED = { at: 65_536, bytes: RECEIVES * SLOT };
const ANSWERS = { at: 131_072, bytes: DEPTH * SLOT };
const WRITTEN = { at: 184_320, bytes: 16_384 };
const ATOMIC = { at: 200_704, bytes: 64 };
export const ARENA_BYTES = 204_800;

interface Operation {
  send: SimSend;
  /** READ and atomics: what the answer must be. */
  answer?: Uint8Array;
}

interface Expected {
  completion: Omit<ModelCompletion, 'wrId'>;
  /** A SEND's bytes. */
  bytes?: Uint8Array;
}

/** One direction: what `from` posts, and what `to` must see of it. */
class Flow {
  readonly operations: Operation[];
  readonly expected: Expected[] = [];
  readonly #from: Endpoint;
  readonly #to: Endpoint;
  readonly #random: Random;
  /** What the peer's memory must hold. */
  readonly #shadow: Uint8Array;
  #posted = 0;
  #completed = 0;
  #receivesPosted = 0;
  #received = 0;
  /** Status of the request that ended the connection, if one did. */
  failure: string | undefined;

  constructor(from: Endpoint, to: Endpoint, count: number, random: Random) {
    this.#from = from;
    this.#to = to;
    this.#random = random;
    this.#shadow = to.arena.slice();
    let fence = false;
    this.operations = Array.from({ length: count }, (_, i) => {
      const operation = this.#draw(i, fence || random.chance(0.1));
      // What a READ of memory that we also write gives is settled only if the next request waits for it.
      const { opcode, remoteOffset = 0 } = operation.send;
      fence = opcode === 'RDMA_READ' && remoteOffset >= WRITTEN.at;
      return operation;
    });
    this.operations[count - 1].send.signaled = true;
    for (let i = 0; i < RECEIVES; i++) this.#postReceive();
  }

  get done(): boolean {
    return this.#completed === this.operations.length && this.#received === this.expected.length;
  }

  #draw(index: number, fence: boolean): Operation {
    const random = this.#random;
    const kinds: ModelOpcode[] = [
      'SEND',
      'SEND',
      'SEND_WITH_IMM',
      'RDMA_WRITE',
      'RDMA_WRITE',
      'RDMA_WRITE_WITH_IMM',
      'RDMA_READ',
      'RDMA_READ',
      'ATOMIC_FETCH_AND_ADD',
      'ATOMIC_CMP_AND_SWP',
    ];
    const opcode = random.pick(kinds);
    // One in DEPTH is signaled for certain: of unsignaled ones alone nobody would hear that they are done.
    const signaled = random.chance(0.8) || index % DEPTH === DEPTH - 1;
    const common = { wrId: index, opcode, fence, signaled };
    const slot = ANSWERS.at + (index % DEPTH) * SLOT;
    if (opcode.startsWith('ATOMIC_')) return this.#drawAtomic(common, slot);
    const length = this.#drawLength();
    if (opcode === 'RDMA_READ') {
      const area = random.chance(0.5) ? SOURCE : WRITTEN;
      const remoteOffset = area.at + random.between(0, area.bytes - length);
      const answer = this.#shadow.slice(remoteOffset, remoteOffset + length);
      return { send: { ...common, offset: slot, length, remoteOffset }, answer };
    }
    const offset = SOURCE.at + random.between(0, SOURCE.bytes - length);
    const send: SimSend = { ...common, offset, length };
    const bytes = this.#from.arena.slice(offset, offset + length);
    if (opcode.startsWith('RDMA_WRITE')) {
      send.remoteOffset = WRITTEN.at + random.between(0, WRITTEN.bytes - length);
      this.#shadow.set(bytes, send.remoteOffset);
    }
    if (opcode.endsWith('_WITH_IMM')) send.immediate = random.next();
    if (opcode === 'RDMA_WRITE') return { send };
    const isSend = opcode.startsWith('SEND');
    this.expected.push({
      completion: {
        status: 'SUCCESS',
        opcode: isSend ? 'RECV' : 'RECV_RDMA_WITH_IMM',
        byteLen: length,
        ...(send.immediate === undefined ? {} : { immediate: send.immediate }),
      },
      ...(isSend ? { bytes } : {}),
    });
    return { send };
  }

  #drawAtomic(common: Pick<SimSend, 'wrId' | 'opcode' | 'fence' | 'signaled'>, slot: number): Operation {
    const random = this.#random;
    const remoteOffset = ATOMIC.at + 8 * random.between(0, ATOMIC.bytes / 8 - 1);
    const target = this.#shadow.subarray(remoteOffset, remoteOffset + 8);
    const original = readU64(target);
    const answer = target.slice();
    const wide = (BigInt(random.next()) << 32n) | BigInt(random.next());
    const send: SimSend = { ...common, offset: slot, length: 8, remoteOffset };
    if (common.opcode === 'ATOMIC_FETCH_AND_ADD') {
      send.compareAdd = wide;
      writeU64(target, BigInt.asUintN(64, original + wide));
    } else {
      send.compareAdd = random.chance(0.5) ? original : wide;
      send.swap = wide;
      if (send.compareAdd === original) writeU64(target, wide);
    }
    return { send, answer };
  }

  #drawLength(): number {
    const random = this.#random;
    const edges = [0, 1, 3, 4, 255, 256, 257, 1023, 1024, 1025, 2048, 4096, 4097, LONGEST];
    return random.chance(0.4) ? random.pick(edges) : random.between(0, random.chance(0.7) ? 200 : LONGEST);
  }

  #postReceive(): void {
    const wrId = this.#receivesPosted++;
    this.#to.postReceive({ wrId, offset: RECEIVED.at + (wrId % RECEIVES) * SLOT, length: SLOT });
  }

  /** Posts what fits; receives sometimes late, so that the peer runs into RNR NAKs. */
  post(): void {
    if (this.failure !== undefined) return;
    while (this.#posted < this.operations.length && this.#posted - this.#completed < DEPTH) {
      this.#from.postSend(this.operations[this.#posted++].send);
    }
    const posted = this.#receivesPosted - this.#received;
    if (posted < RECEIVES && (posted === 0 || this.#random.chance(0.3))) this.#postReceive();
  }

  /** Looks at the completions. @throws Error for anything that was not foreseen */
  poll(sends: ModelCompletion[], receives: ModelCompletion[]): void {
    for (const completion of receives) this.#checkReceive(completion);
    for (const completion of sends) this.#checkSend(completion);
  }

  #checkReceive({ wrId, solicited: _, ...completion }: ModelCompletion): void {
    if (completion.status === 'WR_FLUSH_ERR') return;
    const expected = this.expected[this.#received];
    require(expected !== undefined, 'a message was received twice', completion);
    require(wrId === this.#received, 'receives completed out of order', { wrId, expected: this.#received });
    require(same(completion, expected.completion), 'a receive completed otherwise', { completion, expected });
    if (expected.bytes !== undefined) {
      const at = RECEIVED.at + (wrId % RECEIVES) * SLOT;
      const bytes = this.#to.arena.subarray(at, at + expected.bytes.length);
      require(sameBytes(bytes, expected.bytes), 'a message arrived damaged', { wrId });
    }
    this.#received++;
  }

  #checkSend(completion: ModelCompletion): void {
    const { wrId, status } = completion;
    if (status !== 'SUCCESS') {
      if (status !== 'WR_FLUSH_ERR') this.failure ??= status;
      return;
    }
    require(wrId >= this.#completed && wrId < this.#posted, 'a request completed out of order', completion);
    for (; this.#completed <= wrId; this.#completed++) {
      const { send, answer } = this.operations[this.#completed];
      const skipped = this.#completed < wrId && send.signaled !== false;
      require(!skipped, 'a signaled request gave no completion', send);
      if (answer === undefined) continue;
      const bytes = this.#from.arena.subarray(send.offset, send.offset + answer.length);
      require(sameBytes(bytes, answer), 'an answer is wrong', send);
    }
    require(this.operations[wrId].send.signaled !== false, 'an unsignaled request completed', completion);
  }

  /** The memory that this flow writes. */
  checkMemory(): void {
    for (const { at, bytes } of [WRITTEN, ATOMIC]) {
      const memory = this.#to.arena.subarray(at, at + bytes);
      require(sameBytes(memory, this.#shadow.subarray(at, at + bytes)), 'memory differs at the end', { at });
    }
  }
}

function require(condition: boolean, message: string, detail: unknown): void {
  if (condition) return;
  const text = JSON.stringify(detail, (_, value) => (typeof value === 'bigint' ? `${value}n` : value));
  throw new Error(`${message}: ${text}`);
}

const sameBytes = (a: Uint8Array, b: Uint8Array) =>
  a.length === b.length && a.every((byte, i) => byte === b[i]);

const same = (a: object, b: object) => {
  const sorted = (value: object) => JSON.stringify(Object.entries(value).sort());
  return sorted(a) === sorted(b);
};

/** Both directions between two connected endpoints. */
export class MixedWorkload {
  readonly #a: Endpoint;
  readonly #b: Endpoint;
  readonly #aToB: Flow;
  readonly #bToA: Flow;

  /** @param count requests of each side; arenas have `ARENA_BYTES` */
  constructor(a: Endpoint, b: Endpoint, count: number, random: Random) {
    this.#a = a;
    this.#b = b;
    for (const { arena } of [a, b]) for (let i = 0; i < arena.length; i++) arena[i] = random.next();
    this.#aToB = new Flow(a, b, count, random);
    this.#bToA = new Flow(b, a, count, random);
    this.#post();
  }

  #post(): void {
    this.#aToB.post();
    this.#bToA.post();
  }

  /** The status that ended the connection, if one did. */
  get failure(): string | undefined {
    return this.#aToB.failure ?? this.#bToA.failure;
  }

  /**
   * To be called after each step: checks what completed, posts more. True once all is done, or the
   * connection has failed.
   * @throws Error when something happened that must not
   */
  step(): boolean {
    this.#aToB.poll(this.#a.pollSend(), this.#b.pollReceive());
    this.#bToA.poll(this.#b.pollSend(), this.#a.pollReceive());
    if (this.failure !== undefined) return true;
    if (this.#aToB.done && this.#bToA.done) {
      this.#aToB.checkMemory();
      this.#bToA.checkMemory();
      return true;
    }
    this.#post();
    return false;
  }
}
