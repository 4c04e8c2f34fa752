/** One direction of requests of a connection: what was sent, and what is acknowledged. Positions count from the first request seen. */
import { AethKind, aethKind, psnAdd, psnDiff } from '@node-roce/wire';
import type { TracePacket } from './packet.ts';

/** A request packet that was seen. */
export interface Sent {
  /** Position of its first PSN. */
  at: number;
  /** PSNs that it takes: those of a READ, as many as it has responses. */
  span: number;
  packet: TracePacket;
  /** How often it was seen. */
  copies: number;
  /** Messages that began before it, since the latest gap; −1 if that is not known. */
  message: number;
  /** Gaps in the new requests before it. */
  gaps: number;
}

/** A READ or an atomic that waits for its responses. */
export interface Awaited extends Sent {
  /** Position of the next response. */
  next: number;
  /** Positions at which it was asked for again: of a READ, its rest. */
  starts: Set<number>;
}

/** Positions that are kept behind the first that is not acknowledged. */
const KEPT = 4096;
/** A PSN farther away than this is another connection's, with the same queue pair numbers. */
const FARTHEST = 1 << 17;
/** No path MTU is smaller: a READ of so few bytes has one response. */
const LEAST_MTU = 256;

/** The requests of one side of a connection. */
export class Flow {
  readonly pathMtu: number | undefined;
  readonly sent = new Map<number, Sent>();
  /** READs and atomics that are not answered, oldest first. */
  readonly awaited: Awaited[] = [];
  /** The latest ones that are answered; they may be asked for again. */
  readonly answered: Awaited[] = [];
  /** Behind the last PSN sent. */
  next = 0;
  /** Where the requester goes on if it goes neither back nor ahead. */
  position = 0;
  /** Where it may go on as well: behind the READ of which it asked for a part again. */
  behindRead: number | undefined;
  /** Highest position that is acknowledged. */
  acknowledged = -1;
  /** Positions of new requests that were not seen. */
  readonly holes = new Set<number>();
  /** Messages that began. */
  messages = 0;
  /** Gaps in the new requests: the messages in them are not known. */
  gaps = 0;
  /** A packet was acknowledged that was not seen: the capture has lost packets, or the responder is wrong. */
  isIncomplete = false;
  #first: number | undefined;
  #pruned = 0;

  constructor(pathMtu: number | undefined) {
    this.pathMtu = pathMtu;
  }

  get hasBegun(): boolean {
    return this.#first !== undefined;
  }

  /** The position of a PSN, by the nearest way from the last one sent. */
  positionOf(psn: number): number {
    this.#first ??= psn;
    return this.next + psnDiff(psn, psnAdd(this.#first, this.next));
  }

  /** A request with this PSN begins another connection. */
  isElsewhere(psn: number): boolean {
    return this.hasBegun && Math.abs(this.positionOf(psn) - this.next) > FARTHEST;
  }

  /** The first position that is not acknowledged, as far as the capture shows. */
  get unacknowledged(): number {
    const first = this.awaited[0]?.next ?? Number.POSITIVE_INFINITY;
    return Math.min(this.acknowledged + 1, first);
  }

  /** PSNs of a request; undefined for a READ whose path MTU is not known. */
  spanOf({ info, reth }: TracePacket): number | undefined {
    if (!info.isReadRequest) return 1;
    const length = reth?.length ?? 0;
    if (length <= LEAST_MTU) return 1;
    return this.pathMtu && Math.ceil(length / this.pathMtu);
  }

  /** Takes a request, after it was judged. */
  request(packet: TracePacket, at: number, span: number): void {
    const known = this.sent.get(at);
    const isNew = at >= this.next;
    if (at > this.next) this.gaps++;
    if (known !== undefined) known.copies++;
    else this.#add({ at, span, packet, copies: 1, message: isNew ? this.messages : -1, gaps: this.gaps });
    const read = this.awaitedAt(at);
    read?.starts.add(at);
    this.behindRead = read?.packet.info.isReadRequest ? read.at + read.span : undefined;
    if (isNew) {
      for (let hole = this.next; hole < at; hole++) this.holes.add(hole);
      if (packet.info.first) this.messages++;
      this.next = at + span;
    }
    this.holes.delete(at);
    this.position = at + span;
  }

  #add(sent: Sent): void {
    this.sent.set(sent.at, sent);
    const { isReadRequest, isAtomic, isFlush, isAtomicWrite } = sent.packet.info;
    const isAwaited = isReadRequest || isAtomic || isFlush || isAtomicWrite;
    // The rest of a READ is no other READ.
    if (!isAwaited || sent.at < this.next) return;
    this.awaited.push({ ...sent, next: sent.at, starts: new Set([sent.at]) });
  }

  /** The READ or atomic that a position belongs to. */
  awaitedAt(at: number): Awaited | undefined {
    const fits = (each: Awaited) => at >= each.at && at < each.at + each.span;
    return this.awaited.find(fits) ?? this.answered.findLast(fits);
  }

  /** Takes a response, after it was judged. */
  response(packet: TracePacket, at: number): void {
    const isAnswer = packet.info.key !== 'RC_ACKNOWLEDGE';
    const isRefused = !isAnswer && aethKind(packet.syndrome) !== AethKind.ACK;
    const up = isRefused ? at - 1 : at;
    if (up >= this.next) return;
    for (const hole of this.holes) {
      if (hole > up) continue;
      this.holes.delete(hole);
      this.isIncomplete = true;
    }
    if (isAnswer) this.#answer(at);
    this.acknowledged = Math.max(this.acknowledged, up);
    this.#prune();
  }

  #answer(at: number): void {
    const [oldest] = this.awaited;
    if (oldest === undefined || oldest.next !== at) return;
    oldest.next++;
    if (oldest.next < oldest.at + oldest.span) return;
    this.answered.push(...this.awaited.splice(0, 1));
    if (this.answered.length > 64) this.answered.shift();
  }

  /** Memory does not grow with the capture. */
  #prune(): void {
    const keep = this.unacknowledged - KEPT;
    if (keep < this.#pruned + KEPT) return;
    for (const at of this.sent.keys()) if (at < keep) this.sent.delete(at);
    this.#pruned = keep;
  }
}
