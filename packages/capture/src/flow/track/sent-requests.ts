/**
 * The requests of a queue pair, packet by packet, and the PSNs that they take. A READ takes those of its
 * responses (IBTA vol 1 §9.7.2), whose number depends on the path MTU: until a packet shows that, the newest READ is open.
 */
import { OperationBits, PATH_MTUS, rethVaHigh, rethVaLow, u32 } from '@node-roce/wire';
import type { RocePacket } from '../../read/packet.ts';
import type { PendingResponse } from '../pair/partner-search.ts';
import { EntryFlags, Outstanding, unwrap } from './outstanding.ts';

/** Length of a READ whose RETH the capture cut; READs have 2^31 bytes at most (IBTA vol 1 §9.7.4.1.2). */
export const UNKNOWN_LENGTH = 0xffff_ffff;
/** Responses that such a READ may have. */
const MOST_RESPONSES = 2 ** 15;
const MOST_PATH_MTU = 4096;
/** PSNs this far from those of requests may be of the same queue pair: requests that the capture has not shown. */
const NEAR = 256;
/** A PSN this far ahead is no gap: the capture stopped for a while, or the queue pair began anew. */
export const MAX_GAP = 4096;

/** The requests of one queue pair with their PSNs, and whether a response fits them. */
export class SentRequests {
  readonly out = new Outstanding();
  /** Past the newest PSN sent, unwrapped; −1: nothing was seen. */
  next = -1;
  /** Bytes; 0: not known yet. */
  pathMtu = 0;
  /** The newest packet is a READ whose number of responses is not known. */
  protected openRead = false;
  /** No longer than this is the path MTU, bytes: a READ was asked for up to the end of a packet. */
  #mostPathMtu = MOST_PATH_MTU;
  /** Virtual address of the newest READ, in halves. */
  #vaHigh = 0;
  #vaLow = 0;

  get started(): boolean {
    return this.next >= 0;
  }

  /** Bytes in each packet of a message but the last; the first word counts. */
  learnPathMtu(bytes: number): void {
    if (this.pathMtu > 0) return;
    this.pathMtu = bytes;
    this.#spanReads();
    if (!this.openRead) return;
    const { out } = this;
    const slot = out.slot(out.tail - 1);
    if (out.lengths[slot] === UNKNOWN_LENGTH) return;
    const span = Math.max(1, Math.ceil(out.lengths[slot] / bytes));
    out.spans[slot] = span;
    this.openRead = false;
    this.next = Math.max(this.next, out.psns[slot] + span);
  }

  /** READs before the newest packet that came late, when the path MTU was not known: PSNs behind them are of their responses. */
  #spanReads(): void {
    const { out } = this;
    for (let entry = out.head; entry < out.tail - 1; entry++) {
      const slot = out.slot(entry);
      const length = out.lengths[slot];
      const isRead = (out.opcodes[slot] & 0x1f) === OperationBits.RDMA_READ_REQUEST;
      if ((out.flags[slot] & EntryFlags.SEEN) === 0 || !isRead || length === UNKNOWN_LENGTH) continue;
      if (out.spans[slot] === 1) this.#cover(entry, Math.max(1, Math.ceil(length / this.pathMtu)));
    }
  }

  /** The READ at this entry has so many responses, whose PSNs were noticed as missing packets. */
  #cover(entry: number, span: number): void {
    const { out } = this;
    out.spans[out.slot(entry)] = Math.max(1, span);
    for (let next = entry + 1; next < out.tail && next < entry + span; next++) {
      const flags = out.flags[out.slot(next)];
      if ((flags & EntryFlags.SEEN) === 0) out.flags[out.slot(next)] |= EntryFlags.COVERED;
    }
  }

  /**
   * Whether a response may be the answer to one of these requests: 1, it fits; −1, it does not; 0, nothing to go by. Its
   * PSN has to be one that was sent, and its kind the one that was asked for.
   */
  answersTo({ psn, operation, syndrome }: PendingResponse): number {
    if (!this.started) return 0;
    const { out } = this;
    const at = unwrap(psn, this.next);
    const isAck = operation === OperationBits.ACKNOWLEDGE;
    if (at >= this.next) {
      if (this.openRead && at - this.next < this.mostResponses()) return isAck ? 0 : 1;
      // A NAK names the next PSN where all that was out is lost.
      return isAck && at === this.next && syndrome > 0x1f ? 0 : -1;
    }
    const entry = out.find(at);
    if (entry < 0) return 0;
    const slot = out.slot(entry);
    if ((out.flags[slot] & EntryFlags.SEEN) === 0) return 0;
    if (isAck) {
      // An ACK of a repetition may carry the PSN of a READ, or of a packet that asked for none.
      const asked = (out.flags[slot] & EntryFlags.ACK_REQ) !== 0 && !this.isAsking(slot);
      return asked || syndrome > 0x1f ? 1 : 0;
    }
    const asked = out.opcodes[slot] & 0x1f;
    const isAtomic = asked === OperationBits.COMPARE_SWAP || asked === OperationBits.FETCH_ADD;
    // A READ response answers FLUSH and ATOMIC WRITE, too (annex A19).
    return this.isAsking(slot) && isAtomic === (operation === OperationBits.ATOMIC_ACKNOWLEDGE) ? 1 : -1;
  }

  /**
   * Notes an ACK of this PSN.
   * @returns whether it may be the only answer to its packet, which was sent once and no other ACK has named: if the packet was acknowledged
   * before, a later ACK has overtaken this one. An ACK with a PSN of a READ answers a repetition
   */
  noteNamed(psn: number): boolean {
    const { out } = this;
    const entry = out.find(psn);
    if (entry < 0) return true;
    const slot = out.slot(entry);
    if (this.isAsking(slot)) return false;
    const isAgain = (out.flags[slot] & EntryFlags.ACK_NAMED) !== 0;
    out.flags[slot] |= EntryFlags.ACK_NAMED;
    return !isAgain && out.sends[slot] <= 1;
  }

  /** Whether a PSN is among those sent lately, or close to them. */
  isNear(psn: number): boolean {
    if (!this.started) return false;
    const { out } = this;
    const at = unwrap(psn, this.next);
    const oldest = out.count === 0 ? this.next : out.psns[out.slot(out.head)];
    return at >= oldest - NEAR && at < this.next + NEAR;
  }

  /**
   * Whether a message of the same queue pair may begin with this PSN: the next one, one behind packets that the capture missed, or a
   * retransmission.
   * @param unacked before it everything was answered
   * @param isLong no timer of the requester runs for so long as nothing was sent
   */
  mayGoOn(psn: number, unacked: number, isLong: boolean): boolean {
    const at = unwrap(psn, this.next);
    if (at >= this.next) return at < this.next + NEAR;
    if (at >= unacked) return true;
    return !isLong && at >= unacked - NEAR;
  }

  /** Records the first sight of the packet at this entry. */
  protected fill(entry: number, slot: number, packet: RocePacket): void {
    const { out } = this;
    const { info, payloadLength } = packet;
    out.firstTimes[slot] = packet.time;
    out.lastTimes[slot] = packet.time;
    out.firstFrames[slot] = packet.frame;
    out.lastFrames[slot] = packet.frame;
    out.opcodes[slot] = packet.opcode;
    out.sizes[slot] = payloadLength;
    out.sends[slot] = 1;
    out.flags[slot] |= EntryFlags.SEEN | (packet.ackReq ? EntryFlags.ACK_REQ | EntryFlags.ACK_REQ_LAST : 0);
    out.lengths[slot] = info.isAtomic ? 8 : rethLength(packet);
    if (!info.isReadRequest) return;
    const isKnown = this.pathMtu > 0 && out.lengths[slot] !== UNKNOWN_LENGTH;
    const span = isKnown ? Math.max(1, Math.ceil(out.lengths[slot] / this.pathMtu)) : 0;
    // One that came late leaves the newest one open.
    if (entry < out.tail - 1) {
      this.#cover(entry, span);
      return;
    }
    out.spans[slot] = span;
    if (span > 0) this.next = out.psns[slot] + span;
    this.openRead = span === 0;
    if (this.openRead && out.lengths[slot] !== UNKNOWN_LENGTH) {
      const reth = packet.bth + info.offsets.reth;
      this.#vaHigh = rethVaHigh(packet.bytes, reth);
      this.#vaLow = rethVaLow(packet.bytes, reth);
    }
  }

  protected isAsking(slot: number): boolean {
    return (this.out.flags[slot] & EntryFlags.SEEN) !== 0 && asksForData(this.out.opcodes[slot]);
  }

  /** The entry of a packet that was sent, or of the READ whose responses it is among. */
  protected find(psn: number): number {
    const { out } = this;
    if (this.openRead && psn >= out.psns[out.slot(out.tail - 1)]) return out.tail - 1;
    let entry = out.find(psn);
    while (entry > out.head && (out.flags[out.slot(entry)] & EntryFlags.COVERED) !== 0) entry--;
    return entry;
  }

  protected setSpan(entry: number, span: number): void {
    this.out.spans[this.out.slot(entry)] = span;
    this.openRead = false;
  }

  /** Responses of the newest READ at the least path MTU. */
  protected mostResponses(): number {
    const length = this.out.lengths[this.out.slot(this.out.tail - 1)];
    return length === UNKNOWN_LENGTH ? MOST_RESPONSES : Math.max(1, Math.ceil(length / 256));
  }

  /**
   * A READ that asks for the rest of the newest one, or for a gap in it: at a PSN that no path MTU leaves free, so the bytes between the
   * addresses of both are of as many packets. One that asks for its first part alone ends with a packet: the path MTU divides its length.
   */
  protected learnFromRest(psn: number, packet: RocePacket): void {
    if (!this.openRead || !packet.info.isReadRequest) return;
    const { out } = this;
    const slot = out.slot(out.tail - 1);
    const before = psn - out.psns[slot];
    const [length, rest] = [out.lengths[slot], rethLength(packet)];
    if (length === UNKNOWN_LENGTH || rest === UNKNOWN_LENGTH) return;
    const reth = packet.bth + packet.info.offsets.reth;
    const high = rethVaHigh(packet.bytes, reth) - this.#vaHigh;
    const skipped = high * 2 ** 32 + rethVaLow(packet.bytes, reth) - this.#vaLow;
    // At another address it is another READ: its queue pair was made anew.
    if (before === 0 && skipped === 0 && rest < length) this.#boundPathMtu(rest & -rest);
    if (before < 1 || before >= Math.ceil(length / this.#mostPathMtu)) return;
    const bytes = skipped / before;
    if (skipped + rest <= length && Number.isInteger(bytes) && isPathMtu(bytes)) this.learnPathMtu(bytes);
  }

  #boundPathMtu(bytes: number): void {
    const [least] = PATH_MTUS;
    if (bytes < least) return;
    this.#mostPathMtu = Math.min(this.#mostPathMtu, bytes);
    if (this.#mostPathMtu === least) this.learnPathMtu(least);
  }

  /** Whether the READ in a slot may have so many responses, at one of the path MTUs. */
  protected isPossibleSpan(span: number, slot = this.out.slot(this.out.tail - 1)): boolean {
    const length = this.out.lengths[slot];
    if (length === UNKNOWN_LENGTH) return span >= 1 && span <= MOST_RESPONSES;
    return PATH_MTUS.some((mtu) => mtu <= this.#mostPathMtu && Math.max(1, Math.ceil(length / mtu)) === span);
  }

  protected responsesOf(packet: RocePacket): number {
    const length = rethLength(packet);
    return this.pathMtu > 0 && length !== UNKNOWN_LENGTH ? Math.max(1, Math.ceil(length / this.pathMtu)) : 1;
  }
}

/** Whether a request is answered by a response of its own, and no ACK. */
export function asksForData(opcode: number): boolean {
  const operation = opcode & 0x1f;
  return (
    operation === OperationBits.RDMA_READ_REQUEST ||
    operation === OperationBits.COMPARE_SWAP ||
    operation === OperationBits.FETCH_ADD ||
    operation === OperationBits.FLUSH ||
    operation === OperationBits.ATOMIC_WRITE
  );
}

/** The length that the RETH asks for; 0 where there is none, `UNKNOWN_LENGTH` where the capture was cut before it. */
export function rethLength({ info, bth, bytes, end }: RocePacket): number {
  if (info.offsets.reth < 0) return 0;
  const at = bth + info.offsets.reth;
  return at + 16 <= end ? u32(bytes, at + 12) : UNKNOWN_LENGTH;
}

/** Whether so many bytes of payload are those of a path MTU. */
export const isPathMtu = (bytes: number): boolean =>
  bytes >= 256 && bytes <= 4096 && (bytes & (bytes - 1)) === 0;
