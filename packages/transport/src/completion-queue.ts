/** The engine's side of a completion queue: entries are written at once, published after the copies. */
import type { CqCreated } from './control.ts';
import { CQE_WORDS, Cqe, createRing, Ring } from './rings.ts';

export class CompletionQueue {
  readonly handle: number;
  ring: Ring;
  /** The ring before the last resize: the program may still be arming it. */
  #previous: Ring | undefined;
  /** Queue pairs that complete here. */
  users = 0;
  overrun = false;
  /** Written, not yet published. */
  #next: number;
  #published: number;
  /** A completion that a solicited-only notification waits for is among the unpublished. */
  #solicited = false;

  constructor(handle: number, entries: number) {
    this.handle = handle;
    this.ring = new Ring(createRing(entries, CQE_WORDS));
    this.#next = 0;
    this.#published = 0;
  }

  get created(): CqCreated {
    return { handle: this.handle, cqe: this.ring.capacity, ring: this.ring.shape };
  }

  /**
   * ibv_resize_cq(3): completions go to a new ring from now on. The program empties the old one first, so
   * their order stays.
   */
  resize(entries: number): CqCreated {
    this.#previous = this.ring;
    this.ring = new Ring(createRing(entries, CQE_WORDS));
    this.ring.state = this.#previous.state;
    this.#next = this.#published = 0;
    return this.created;
  }

  /** Completions that the program has not taken. */
  get outstanding(): number {
    return this.ring.used + (this.#previous?.used ?? 0);
  }

  get dirty(): boolean {
    return this.#next !== this.#published;
  }

  /**
   * Writes one entry. False if there is no room: the queue has overrun and is of no further use
   * (IBV_EVENT_CQ_ERR).
   *
   * @param solicited raises a solicited-only notification: a solicited receive, or any failure
   */
  push(
    wrIdLow: number,
    wrIdHigh: number,
    status: number,
    opcode: number,
    byteLen: number,
    qpn: number,
    immediate: number,
    flags: number,
    srcQp: number,
    solicited: boolean,
  ): boolean {
    const ring = this.ring;
    if (this.overrun || ((this.#next - ring.consumer) | 0) >= ring.capacity) {
      this.overrun = true;
      ring.state = 1;
      return false;
    }
    const words = ring.words;
    const w = ring.wordOf(this.#next);
    words[w + Cqe.WR_ID_LOW] = wrIdLow;
    words[w + Cqe.WR_ID_HIGH] = wrIdHigh;
    words[w + Cqe.STATUS] = status;
    words[w + Cqe.OPCODE] = opcode;
    words[w + Cqe.BYTE_LEN] = byteLen;
    words[w + Cqe.IMMEDIATE] = immediate;
    words[w + Cqe.QP_NUM] = qpn;
    words[w + Cqe.SRC_QP] = srcQp;
    words[w + Cqe.FLAGS] = flags;
    words[w + Cqe.VENDOR_ERR] = 0;
    words[w + Cqe.PKEY_INDEX] = 0;
    words[w + Cqe.SL] = 0;
    this.#next = (this.#next + 1) | 0;
    this.#solicited ||= solicited;
    return true;
  }

  /** Shows the program what was written. True if it asked to be told. */
  publish(): boolean {
    if (!this.dirty) return false;
    this.#published = this.#next;
    this.ring.publish(this.#next);
    const solicited = this.#solicited;
    this.#solicited = false;
    const told = this.ring.disarm(solicited);
    return (this.#previous?.disarm(solicited) ?? false) || told;
  }
}
