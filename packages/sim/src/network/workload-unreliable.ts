/** One direction between two queue pairs of UC or UD: random messages, and what must come of them by what the wire brought. */
import { opcodeInfo, type Random } from '@node-roce/wire';
import { MULTICAST_QPN } from '../model/multicast.ts';
import type { ModelPacket } from '../model/packet.ts';
import { GRH_BYTES } from '../model/ud-responder.ts';
import type { ModelCompletion } from '../model/work.ts';
import { ACTIVE_MTU, type SimQp, type SimReceive, type SimSend } from './endpoint.ts';
import { require, same, sameBytes } from './workload-checks.ts';
import { Delivery, type Waiting } from './workload-delivery.ts';
import { DEPTH } from './workload-layout.ts';

const MAX_MESSAGE_BYTES = 6000;
const SLOT = MAX_MESSAGE_BYTES + GRH_BYTES;
/** Few enough that a message finds none now and then. */
const SLOTS = 6;

// The part of an arena that one direction has: on its sender's side the source, on the other the rest.
const SOURCE = { at: 0, bytes: 16_384 };
const WRITTEN = { at: 16_384, bytes: 16_384 };
const RECEIVED = { at: 32_768, bytes: SLOTS * SLOT };
export const UNRELIABLE_BYTES = RECEIVED.at + RECEIVED.bytes + 64;

/** Receives of one queue pair, or of an SRQ that several have. */
export class UnreliableReceives implements Waiting {
  /** Posted and not taken by a message. */
  readonly wrIds: number[] = [];
  readonly shared: boolean;
  readonly #arena: Uint8Array;
  readonly #at: number;
  readonly #post: (receive: SimReceive) => void;
  /** Slot of each that has not completed. */
  readonly #slots = new Map<number, number>();
  #posted = 0;

  /** @param at where its part of the arena begins */
  constructor(arena: Uint8Array, at: number, post: (receive: SimReceive) => void, shared: boolean) {
    this.#arena = arena;
    this.#at = at + RECEIVED.at;
    this.#post = post;
    this.shared = shared;
  }

  refill(random: Random): void {
    while (this.#slots.size < SLOTS && random.chance(0.6)) {
      const used = new Set(this.#slots.values());
      const slot = Array.from({ length: SLOTS }, (_, i) => i).find((i) => !used.has(i))!;
      const wrId = this.#posted++;
      this.#slots.set(wrId, slot);
      this.wrIds.push(wrId);
      this.#post({ wrId, offset: this.#at + slot * SLOT, length: SLOT });
    }
  }

  take(wrId: number, length: number): Uint8Array {
    const slot = this.#slots.get(wrId);
    require(slot !== undefined, 'a receive completed that is not posted', { wrId });
    this.#slots.delete(wrId);
    return this.#arena.slice(this.#at + slot! * SLOT, this.#at + slot! * SLOT + length);
  }
}

export interface UnreliableFlowOptions {
  service: 'UC' | 'UD';
  from: SimQp;
  fromArena: Uint8Array;
  to: SimQp;
  toArena: Uint8Array;
  /** Where this direction's part begins in both arenas. */
  at: number;
  count: number;
  random: Random;
  receives: UnreliableReceives;
  /** UD: a group that the other side is attached to. */
  group?: Uint8Array;
}

/** One direction of UC or UD traffic in a workload. */
export class UnreliableFlow {
  readonly #options: UnreliableFlowOptions;
  readonly #delivery: Delivery;
  readonly #memory: Uint8Array;
  #posted = 0;
  /** Requests posted and not known to be done: their numbers, and whether they are signaled. */
  readonly #outstanding: { wrId: number; signaled: boolean }[] = [];
  /** Requests of which no packet, or not every one, was sent. */
  readonly #unsent: SimSend[] = [];
  #sentBytes = 0;
  /** Messages that arrived whole. */
  delivered = 0;

  constructor(options: UnreliableFlowOptions) {
    this.#options = options;
    const { toArena, to, at, receives } = options;
    this.#memory = toArena.slice(at + WRITTEN.at, at + WRITTEN.at + WRITTEN.bytes);
    const base = to.info.base + BigInt(at + WRITTEN.at);
    this.#delivery = new Delivery(receives, this.#memory, (va) => (va < 0n ? 0 : Number(va - base)));
  }

  /** All were sent. */
  get done(): boolean {
    return this.#posted === this.#options.count && this.#outstanding.length === 0;
  }

  post(): void {
    const { from, count, random, receives } = this.#options;
    while (this.#posted < count && this.#outstanding.length < DEPTH) {
      const send = this.#draw(this.#posted++);
      this.#outstanding.push({ wrId: send.wrId, signaled: send.signaled !== false });
      this.#unsent.push(send);
      from.postSend(send);
    }
    receives.refill(random);
  }

  #draw(wrId: number): SimSend {
    const { service, random, at, count } = this.#options;
    const datagram = service === 'UD';
    const edges = [0, 1, 3, 256, 257, 1024, 1025, ACTIVE_MTU];
    const longest = datagram ? ACTIVE_MTU : MAX_MESSAGE_BYTES;
    const length = random.chance(0.4)
      ? random.pick(edges)
      : random.between(0, random.chance(0.5) ? 200 : longest);
    const kinds = datagram
      ? (['SEND', 'SEND_WITH_IMM'] as const)
      : (['SEND', 'SEND', 'SEND_WITH_IMM', 'RDMA_WRITE', 'RDMA_WRITE_WITH_IMM'] as const);
    const opcode = random.pick<(typeof kinds)[number]>(kinds);
    const offset = at + SOURCE.at + random.between(0, SOURCE.bytes - length);
    const signaled = random.chance(0.8) || wrId % DEPTH === DEPTH - 1 || wrId === count - 1;
    const send: SimSend = { wrId, opcode, offset, length, signaled };
    if (opcode.endsWith('_IMM')) send.immediate = random.next();
    if (opcode.startsWith('RDMA_WRITE')) {
      send.remoteOffset = at + WRITTEN.at + random.between(0, WRITTEN.bytes - length);
    }
    if (datagram) this.#address(send);
    return send;
  }

  /** To the group, or with a controlled Q_Key: then the sender's own goes along. */
  #address(send: SimSend): void {
    const { to, group, random } = this.#options;
    const { gid, qpn, qkey = 0 } = to.info;
    if (group !== undefined && random.chance(0.3)) send.to = { gid: group, qpn: MULTICAST_QPN, qkey };
    else if (random.chance(0.2)) send.to = { gid, qpn, qkey: 0x8000_0001 };
  }

  /** A packet left the sending queue pair. @throws Error unless it is the next of what was posted */
  sent(packet: ModelPacket): void {
    const request = this.#unsent[0];
    require(request !== undefined, 'a packet was sent that nobody posted', { psn: packet.psn });
    const { offset, length, immediate, opcode } = request;
    const { first, last, isSend } = opcodeInfo(packet.opcode)!;
    const bytes = this.#options.fromArena.subarray(offset + this.#sentBytes, offset + length);
    const payload = bytes.subarray(0, packet.payload.length);
    const right =
      first === (this.#sentBytes === 0) &&
      last === (this.#sentBytes + packet.payload.length === length) &&
      isSend === opcode.startsWith('SEND') &&
      (!last || packet.immediate === immediate) &&
      sameBytes(payload, packet.payload);
    require(right, 'a packet is not the next of what was posted', { request, at: this.#sentBytes });
    this.#sentBytes = last ? 0 : this.#sentBytes + packet.payload.length;
    if (last) this.#unsent.shift();
  }

  /** A packet for the receiving queue pair arrived undamaged. */
  arrived(packet: ModelPacket, grh: Uint8Array): void {
    this.#delivery.arrive(packet, grh);
  }

  /** Looks at the completions. @throws Error for anything but what the wire's packets make due */
  poll(sends: ModelCompletion[], receives: ModelCompletion[]): void {
    for (const completion of sends) this.#checkSend(completion);
    for (const { solicited: _, ...completion } of receives) {
      const due = this.#delivery.due.shift();
      require(due !== undefined, 'a message completed that did not arrive', completion);
      require(same(completion, due!.completion), 'a receive completed otherwise', {
        completion,
        due: due!.completion,
      });
      const bytes = this.#options.receives.take(completion.wrId, due!.bytes.length);
      require(sameBytes(bytes, due!.bytes), 'a message arrived damaged', completion);
      if (completion.status === 'SUCCESS') this.delivered++;
    }
    const [missing] = this.#delivery.due;
    require(missing === undefined, 'a message arrived and did not complete', missing?.completion);
  }

  #checkSend({ wrId, status }: ModelCompletion): void {
    require(status === 'SUCCESS', 'a request failed', { wrId, status });
    for (;;) {
      const request = this.#outstanding.shift();
      require(request !== undefined, 'a request completed twice', { wrId });
      if (request!.wrId === wrId) return;
      require(!request!.signaled, 'a signaled request gave no completion', request);
    }
  }

  /** The memory that WRITEs go to. */
  checkMemory(): void {
    const { toArena, at } = this.#options;
    const memory = toArena.subarray(at + WRITTEN.at, at + WRITTEN.at + WRITTEN.bytes);
    require(sameBytes(memory, this.#memory), 'memory differs at the end', { at });
  }
}
