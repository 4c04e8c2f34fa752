/** Which receive a SEND gets at a queue pair of a tag matching SRQ: a tagged buffer, or one for unexpected messages. */
import {
  RENDEZVOUS_BYTES,
  rvhLength,
  TMH_BYTES,
  TmhOpcode,
  tmhData,
  tmhOpcode,
  tmhTagHigh,
  tmhTagLow,
} from '@node-roce/wire';
import type { CompletionQueue } from '../completion-queue.ts';
import { WcFlags, WcOpcode } from '../constants.ts';
import { Cqe } from '../entry-words.ts';
import type { InboundPacket } from '../inbound.ts';
import type { Ring } from '../rings.ts';
import type { Rendezvous } from './rendezvous.ts';
import type { TagList } from './tag-list.ts';

/** Bytes of a rendezvous request at most: a longer one is the program's to carry out. */
export const MAX_RENDEZVOUS_BYTES = 64;

const Kind = { NO_TAG: 0, UNEXPECTED: 1, EAGER: 2, RENDEZVOUS: 3 } as const;

/**
 * Owns the kind of the SEND that arrives. Promise: an unexpected one is counted from its first packet on, and once when it is
 * delivered.
 */
export class TaggedReceives {
  readonly #tags: TagList;
  readonly #ring: Ring;
  readonly #rendezvous: Rendezvous | undefined;
  #kind: number = Kind.NO_TAG;
  /** Its headers, as far as they are looked at. */
  readonly #header = new Uint8Array(RENDEZVOUS_BYTES);
  /** It has begun as unexpected, and not ended. */
  #unexpected = false;

  /** @param ring the queue pair's own, with room for one entry */
  constructor(tags: TagList, ring: Ring, rendezvous: Rendezvous | undefined) {
    this.#tags = tags;
    this.#ring = ring;
    this.#rendezvous = rendezvous;
  }

  /**
   * Looks at the first packet of a SEND. A buffer that matches is the queue pair's from here on. False where there is
   * one, and no room to read what it is for.
   */
  choose({ info, slab, at, payload }: InboundPacket): boolean {
    const tmh = at + info.headerLength;
    this.#kind = Kind.NO_TAG;
    if (payload < TMH_BYTES) return true;
    const opcode = tmhOpcode(slab, tmh);
    if (opcode !== TmhOpcode.EAGER && opcode !== TmhOpcode.RENDEZVOUS) return true;
    this.#kind = Kind.UNEXPECTED;
    const asks = opcode === TmhOpcode.RENDEZVOUS;
    if (asks) {
      const isWhole = info.last && payload >= RENDEZVOUS_BYTES && payload <= MAX_RENDEZVOUS_BYTES;
      if (!isWhole || !this.#rendezvous?.isPossible) return true;
    }
    const found = this.#tags.find(tmhTagHigh(slab, tmh), tmhTagLow(slab, tmh));
    if (found < 0) return true;
    if (asks && !this.#rendezvous?.hasRoom()) return false;
    const bytes = asks ? RENDEZVOUS_BYTES : TMH_BYTES;
    for (let i = 0; i < bytes; i++) this.#header[i] = slab[tmh + i];
    this.#kind = asks ? Kind.RENDEZVOUS : Kind.EAGER;
    this.#tags.take(found, this.#ring);
    return true;
  }

  /** It begins to arrive. @returns bytes of this packet that are not of the message: all but those that a request stands for */
  begin(payload: number): number {
    if (this.#kind === Kind.UNEXPECTED) {
      this.#unexpected = true;
      this.#tags.begin();
    }
    if (this.#kind === Kind.RENDEZVOUS) return payload - rvhLength(this.#header, 0);
    return this.#kind === Kind.EAGER ? TMH_BYTES : 0;
  }

  /** Whether what arrives stands for data that has to be read. */
  get asks(): boolean {
    return this.#kind === Kind.RENDEZVOUS;
  }

  /** Reads that data into the list of a receive entry. */
  read(words: Uint32Array, entry: number, count: number, length: number): void {
    this.#rendezvous?.start(this.#header, words, entry, count, length);
  }

  /** Its receive has ended, if there was one. */
  end(delivered: boolean): void {
    if (!this.#unexpected) return;
    this.#unexpected = false;
    this.#tags.end(delivered);
  }

  /** Completes the entry at `w` of the queue for it. @returns `WcFlags` */
  describe({ words, tagged }: CompletionQueue, w: number): number {
    const kind = this.#kind;
    words[w + Cqe.OPCODE] = kind === Kind.NO_TAG ? WcOpcode.TM_NO_TAG : WcOpcode.TM_RECV;
    if (kind === Kind.NO_TAG || kind === Kind.UNEXPECTED) return 0;
    if (tagged) {
      words[w + Cqe.TAG_HIGH] = tmhTagHigh(this.#header, 0);
      words[w + Cqe.TAG_LOW] = tmhTagLow(this.#header, 0);
      words[w + Cqe.TAG_DATA] = tmhData(this.#header, 0);
    }
    return kind === Kind.EAGER ? WcFlags.TM_MATCH | WcFlags.TM_DATA_VALID : WcFlags.TM_MATCH;
  }
}
