/** Rendezvous: the data of a matched message is read from the sender, which then hears that it has its memory back. */
import { rvhRkey, rvhVaHigh, rvhVaLow, TMH_BYTES, TmhOpcode } from '@node-roce/wire';
import { QpStateCode, SendFlags, WrOpcode } from '../constants.ts';
import { RecvWqe, SendWqe, SGE_WORDS, Sge } from '../entry-words.ts';
import type { Owner } from '../qp/owner.ts';
import type { Ring } from '../rings.ts';

/** Entries of the send queue for each: a READ, and the message that ends it. */
const ENTRIES = 2;
/** Rendezvous that a queue pair may have under way; another request for one gets an RNR NAK. */
const MAX_RENDEZVOUS = 32;

/** Entries of a send queue that has no other requests. */
export const RENDEZVOUS_ENTRIES = ENTRIES * MAX_RENDEZVOUS;

/**
 * The producer of the send queue of a queue pair whose program asked for none (`maxSendWr` 0). The message at the end is fenced,
 * so that it is sent when the data is there; later READs wait for it.
 */
export class Rendezvous {
  readonly #owner: Owner;
  readonly #ring: Ring;

  constructor(owner: Owner, ring: Ring) {
    this.#owner = owner;
    this.#ring = ring;
  }

  /** Whether the queue pair may read: else the program does it. */
  get isPossible(): boolean {
    const { state, attributes } = this.#owner;
    return state !== QpStateCode.RTR && attributes.maxRdAtomic > 0;
  }

  hasRoom(): boolean {
    return this.#ring.capacity - this.#ring.used >= ENTRIES;
  }

  /**
   * Reads the `length` bytes that a request names.
   *
   * @param request its headers
   * @param words memory of the receive entry at `entry`, which has room for them
   */
  start(request: Uint8Array, words: Uint32Array, entry: number, count: number, length: number): void {
    const ring = this.#ring;
    const { producer } = ring;
    this.#read(ring.wordOf(producer), request, words, entry, count, length);
    this.#finish(ring.wordOf((producer + 1) | 0), request);
    ring.publish((producer + ENTRIES) | 0);
    this.#owner.wantsTurn();
  }

  #read(
    w: number,
    request: Uint8Array,
    from: Uint32Array,
    entry: number,
    count: number,
    length: number,
  ): void {
    const { words } = this.#ring;
    words[w + SendWqe.OPCODE_FLAGS] = WrOpcode.RDMA_READ | (SendFlags.SIGNALED << 8);
    words[w + SendWqe.WR_ID_LOW] = from[entry + RecvWqe.WR_ID_LOW];
    words[w + SendWqe.WR_ID_HIGH] = from[entry + RecvWqe.WR_ID_HIGH];
    words[w + SendWqe.LENGTH] = length;
    words[w + SendWqe.REMOTE_ADDRESS_HIGH] = rvhVaHigh(request, 0);
    words[w + SendWqe.REMOTE_ADDRESS_LOW] = rvhVaLow(request, 0);
    words[w + SendWqe.RKEY] = rvhRkey(request, 0);
    let elements = 0;
    let left = length;
    for (; elements < count && left > 0; elements++) {
      const source = entry + RecvWqe.SGE + elements * SGE_WORDS;
      const target = w + SendWqe.SGE + elements * SGE_WORDS;
      for (let i = 0; i < SGE_WORDS; i++) words[target + i] = from[source + i];
      // A READ fills its list.
      words[target + Sge.LENGTH] = Math.min(left, from[source + Sge.LENGTH]);
      left -= words[target + Sge.LENGTH];
    }
    words[w + SendWqe.SGE_COUNT] = elements;
  }

  /** The header of the request, as that of the message that ends it. */
  #finish(w: number, request: Uint8Array): void {
    const { words, bytes } = this.#ring;
    words[w + SendWqe.OPCODE_FLAGS] = WrOpcode.SEND | ((SendFlags.FENCE | SendFlags.INLINE) << 8);
    words[w + SendWqe.SGE_COUNT] = 0;
    words[w + SendWqe.LENGTH] = TMH_BYTES;
    const at = (w + SendWqe.SGE) * 4;
    for (let i = 0; i < TMH_BYTES; i++) bytes[at + i] = request[i];
    bytes.fill(0, at, at + 4);
    bytes[at] = TmhOpcode.FIN;
  }
}
