/**
 * One direction of a reliable connection's workload: requests of every kind, and all that must come of them, known
 * beforehand.
 */
import type { Random } from '@node-roce/wire';
import { readU64, writeU64 } from '../model/memory.ts';
import type { ModelCompletion, ModelOpcode } from '../model/work.ts';
import type { Endpoint, SimDevice, SimQp, SimReceive, SimSend } from './endpoint.ts';
import { require, same, sameBytes } from './workload-checks.ts';
import {
  ANSWERS,
  ARENA_BYTES,
  ATOMIC,
  DEPTH,
  MAX_MESSAGE_BYTES,
  SLOT,
  SOURCE,
  WRITTEN,
} from './workload-layout.ts';
import { OwnReceives, type Receives } from './workload-receives.ts';
import { isWindowRequest, type WindowKeeper, type WindowSession } from './workload-windows.ts';

/** An endpoint as a flow uses it: an arena with the layout of workload-layout.ts, and a queue pair. */
export type FlowEnd = Pick<Endpoint, 'arena' | 'postSend' | 'postReceive'>;

interface Operation {
  send: SimSend;
  /** READ and atomics: what the answer must be. */
  answer?: Uint8Array;
  /** FLUSH: what the peer's memory must hold once it is done, and where. Nothing after it is begun before. */
  flushed?: { at: number; bytes: Uint8Array };
  /** It goes through a window of the peer's. */
  session?: WindowSession;
}

interface Expected {
  completion: Omit<ModelCompletion, 'wrId'>;
  /** A SEND's bytes. */
  bytes?: Uint8Array;
}

export interface FlowOptions {
  from: FlowEnd;
  to: FlowEnd;
  /** Requests. */
  count: number;
  random: Random;
  /** Where messages arrive; the queue pair's own queue by default. */
  receives?: Receives;
  /** Windows of the peer, to go through now and then. */
  windows?: WindowKeeper;
}

/** FLUSHes and ATOMIC_WRITEs that are complete. */
export interface Placements {
  flushes: number;
  atomicWrites: number;
}

/** Those of several flows: for tests that have to see that there were some. */
export function placementsOf(flows: readonly Flow[]): Placements {
  const sum = (opcode: ModelOpcode) => flows.reduce((total, flow) => total + flow.completed(opcode), 0);
  return { flushes: sum('FLUSH'), atomicWrites: sum('ATOMIC_WRITE') };
}

/** One direction: what `from` posts, and what `to` must see of it. */
export class Flow {
  readonly operations: Operation[];
  readonly expected: Expected[] = [];
  readonly #from: FlowEnd;
  readonly #to: FlowEnd;
  readonly #random: Random;
  readonly #receives: Receives;
  readonly #windows: WindowKeeper | undefined;
  /** The data that the peer's memory must hold. */
  readonly #shadow: Uint8Array;
  #posted = 0;
  #completed = 0;
  #received = 0;
  /** Status of the request that ended the connection, if one did. */
  failure: string | undefined;

  constructor({ from, to, count, random, receives = new OwnReceives(to), windows }: FlowOptions) {
    this.#from = from;
    this.#to = to;
    this.#random = random;
    this.#receives = receives;
    this.#windows = windows;
    this.#shadow = to.arena.slice();
    let fence = false;
    this.operations = [];
    while (this.operations.length < count) {
      const index = this.operations.length;
      if (windows !== undefined && random.chance(0.1)) {
        this.operations.push(...this.#drawSession(index, windows.draw(random), fence));
        fence = false;
        continue;
      }
      const operation = this.#draw(index, fence || random.chance(0.1));
      // The result of a READ of memory that we also write is defined only if the next request waits for it.
      const { opcode, remoteOffset = 0 } = operation.send;
      fence = (opcode === 'RDMA_READ' && remoteOffset >= WRITTEN.at) || operation.flushed !== undefined;
      this.operations.push(operation);
    }
    this.operations.at(-1)!.send.signaled = true;
    receives.fill();
  }

  /** Requests of an operation that are complete. */
  completed(opcode: ModelOpcode): number {
    return this.operations.slice(0, this.#completed).filter(({ send }) => send.opcode === opcode).length;
  }

  get done(): boolean {
    const all = this.#completed === this.operations.length && this.#received === this.expected.length;
    return all && (this.#windows?.idle ?? true);
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
      'ATOMIC_WRITE',
      'FLUSH',
    ];
    const opcode = random.pick(kinds);
    const signaled = random.chance(0.8) || isSignaledSlot(index);
    const common = { wrId: index, opcode, fence, signaled };
    const slot = ANSWERS.at + (index % DEPTH) * SLOT;
    if (opcode === 'FLUSH') return this.#drawFlush(common);
    if (opcode === 'ATOMIC_WRITE') return this.#drawAtomicWrite(common);
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
    this.#expect(send, bytes);
    return { send };
  }

  /** A SEND, or a WRITE with immediate: the receive that it completes. */
  #expect({ opcode, length, immediate }: SimSend, bytes: Uint8Array): Expected {
    const isSend = opcode.startsWith('SEND');
    const expected: Expected = {
      completion: {
        status: 'SUCCESS',
        opcode: isSend ? 'RECV' : 'RECV_RDMA_WITH_IMM',
        byteLen: length,
        ...(immediate === undefined ? {} : { immediate }),
      },
      ...(isSend ? { bytes } : {}),
    };
    this.expected.push(expected);
    return expected;
  }

  /** WRITEs and READs through a window of the peer; then it goes, by a SEND with invalidate or by the peer's own doing. */
  #drawSession(index: number, session: WindowSession, fenced: boolean): Operation[] {
    const random = this.#random;
    const operations = Array.from({ length: random.between(1, 4) }, (_, i): Operation => {
      const wrId = index + i;
      const length = random.between(0, session.length);
      const within = random.between(0, session.length - length);
      const at = session.offset + within;
      const common = { wrId, length, signaled: true, fence: random.chance(0.1) };
      const aim = session.zeroBased ? { remoteAddress: BigInt(within) } : { remoteOffset: at };
      if (session.reads && random.chance(0.4)) {
        const offset = ANSWERS.at + (wrId % DEPTH) * SLOT;
        const answer = this.#shadow.slice(at, at + length);
        return { send: { ...common, ...aim, opcode: 'RDMA_READ', offset }, answer, session };
      }
      const offset = SOURCE.at + random.between(0, SOURCE.bytes - length);
      this.#shadow.set(this.#from.arena.subarray(offset, offset + length), at);
      return { send: { ...common, ...aim, opcode: 'RDMA_WRITE', offset }, session };
    });
    // As after any READ of memory that is also written.
    operations.forEach(({ send }, i) => {
      if (i === 0 ? fenced : operations[i - 1].answer !== undefined) send.fence = true;
    });
    operations.push(this.#endOfSession(index + operations.length, session));
    return operations;
  }

  #endOfSession(wrId: number, session: WindowSession): Operation {
    const random = this.#random;
    const length = this.#drawLength();
    const offset = SOURCE.at + random.between(0, SOURCE.bytes - length);
    // The READs through the window are over before it goes: one that was asked for again would find none.
    const common = { wrId, offset, length, signaled: true, fence: true };
    const bytes = this.#from.arena.slice(offset, offset + length);
    const send: SimSend = {
      ...common,
      opcode: session.endsWith === 'SEND_WITH_INV' ? 'SEND_WITH_INV' : 'SEND',
    };
    session.last = this.#expect(send, bytes).completion;
    session.lastWrId = wrId;
    return { send, session };
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

  #drawAtomicWrite(common: Pick<SimSend, 'wrId' | 'opcode' | 'fence' | 'signaled'>): Operation {
    const random = this.#random;
    const remoteOffset = ATOMIC.at + 8 * random.between(0, ATOMIC.bytes / 8 - 1);
    const offset = SOURCE.at + random.between(0, SOURCE.bytes - 8);
    this.#shadow.set(this.#from.arena.subarray(offset, offset + 8), remoteOffset);
    return { send: { ...common, offset, length: 8, remoteOffset } };
  }

  /** A FLUSH of the written range; now and then one that asks for nothing, or of the whole region. */
  #drawFlush(common: Pick<SimSend, 'wrId' | 'opcode' | 'fence' | 'signaled'>): Operation {
    const random = this.#random;
    const selectivity = random.chance(0.2) ? 1 : 0;
    const placement = random.chance(0.1) ? 0 : 1;
    const length = random.between(0, WRITTEN.bytes);
    const at = WRITTEN.at + random.between(0, WRITTEN.bytes - length);
    const flush = { length: selectivity === 1 ? random.next() : length, placement, selectivity };
    const flushed = { at, bytes: this.#shadow.slice(at, at + length) };
    const send = { ...common, signaled: true, offset: 0, length: 0, remoteOffset: at, flush };
    return { send, flushed };
  }

  #drawLength(): number {
    const random = this.#random;
    const edges = [0, 1, 3, 4, 255, 256, 257, 1023, 1024, 1025, 2048, 4096, 4097, MAX_MESSAGE_BYTES];
    return random.chance(0.4)
      ? random.pick(edges)
      : random.between(0, random.chance(0.7) ? 200 : MAX_MESSAGE_BYTES);
  }

  /** Posts while there is room; receives sometimes late, so that the peer gets RNR NAKs. */
  post(): void {
    if (this.failure !== undefined) return;
    while (this.#posted < this.operations.length && this.#posted - this.#completed < DEPTH) {
      const { send, session } = this.operations[this.#posted];
      if (session !== undefined && !this.#windows!.aim(session, send)) break;
      this.#from.postSend(send);
      this.#posted++;
    }
    this.#receives.refill(this.#random);
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
    require(same(completion, expected.completion), 'a receive completed otherwise', { completion, expected });
    const bytes = this.#receives.take(wrId);
    if (expected.bytes !== undefined) {
      const arrived = bytes.subarray(0, expected.bytes.length);
      require(sameBytes(arrived, expected.bytes), 'a message arrived damaged', { wrId });
    }
    if (completion.invalidatedRkey !== undefined) this.#windows?.invalidated(completion.invalidatedRkey);
    this.#received++;
  }

  #checkSend(completion: ModelCompletion): void {
    const { wrId, status } = completion;
    if (isWindowRequest(wrId)) return; // the windows' own
    if (status !== 'SUCCESS') {
      if (status !== 'WR_FLUSH_ERR') this.failure ??= status;
      return;
    }
    require(wrId >= this.#completed && wrId < this.#posted, 'a request completed out of order', completion);
    for (; this.#completed <= wrId; this.#completed++) {
      const { send, answer, flushed, session } = this.operations[this.#completed];
      if (session?.lastWrId === this.#completed) this.#windows!.done(session);
      const skipped = this.#completed < wrId && send.signaled !== false;
      require(!skipped, 'a signaled request gave no completion', send);
      if (flushed !== undefined) {
        const there = this.#to.arena.subarray(flushed.at, flushed.at + flushed.bytes.length);
        require(sameBytes(
          there,
          flushed.bytes,
        ), 'a FLUSH was answered and what it covers is not there', send);
      }
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

/** One in DEPTH is signaled for certain: of unsignaled ones alone nobody would hear that they are done. */
const isSignaledSlot = (index: number) => index % DEPTH === DEPTH - 1;

/**
 * A queue pair as a flow uses it, with a part of the arena that looks like all of it.
 *
 * @param at where the part begins, in the arenas of both ends
 */
export function flowEnd(device: SimDevice, qp: SimQp, at: number): FlowEnd {
  return {
    arena: device.arena.subarray(at, at + ARENA_BYTES),
    postReceive: shifted(at, (receive) => qp.postReceive(receive)),
    postSend: (send) =>
      qp.postSend({
        ...send,
        offset: send.offset + at,
        ...(send.remoteOffset === undefined ? {} : { remoteOffset: send.remoteOffset + at }),
        ...(send.bind === undefined ? {} : { bind: { ...send.bind, offset: send.bind.offset + at } }),
      }),
  };
}

export const shifted =
  (at: number, post: (receive: SimReceive) => void) =>
  (receive: SimReceive): void =>
    post({ ...receive, offset: receive.offset + at });
