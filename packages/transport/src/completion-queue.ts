/** The engine's side of a completion queue: entries are written at once, published after the copies. */
import type { CqContents, CqCreated } from './control.ts';
import { CQE_WORDS, Cqe, STAMPED_CQE_WORDS, TAGGED_CQE_WORDS } from './entry-words.ts';
import type { NewRing, Ring } from './rings.ts';

/** A program that was not woken by so many publications polls. */
const SILENT = 64;

/** The engine's side of a completion queue: writes entries and raises events. */
export class CompletionQueue {
  readonly handle: number;
  /** Whether entries have the time of the completion. */
  readonly stamped: boolean;
  /** Whether entries have the tag of the message. */
  readonly tagged: boolean;
  readonly #newRing: NewRing;
  #ring: Ring;
  /** The ring before the last resize: the program may still be arming it. */
  #previous: Ring | undefined;
  #overrun = false;
  /** Written, not yet published. */
  #next: number;
  #published: number;
  /** A completion that a solicited-only notification waits for is among the unpublished, or the queue has overrun. */
  #solicited = false;
  /** Times that entries were published since an event was raised. */
  #silent = SILENT;
  /** Queues that complete here. */
  #users = 0;

  constructor(handle: number, entries: number, newRing: NewRing, contents: CqContents = {}) {
    this.handle = handle;
    this.stamped = contents.stamped ?? false;
    this.tagged = contents.tagged ?? false;
    this.#newRing = newRing;
    this.#ring = newRing(entries, this.#stride());
    this.#next = 0;
    this.#published = 0;
  }

  #stride(): number {
    if (this.tagged) return TAGGED_CQE_WORDS;
    return this.stamped ? STAMPED_CQE_WORDS : CQE_WORDS;
  }

  /** Where completions go. */
  get ring(): Ring {
    return this.#ring;
  }

  /** A completion had no room. */
  get overrun(): boolean {
    return this.#overrun;
  }

  get created(): CqCreated {
    return { handle: this.handle, cqe: this.#ring.capacity, ring: this.#ring.shape };
  }

  /**
   * ibv_resize_cq(3): completions go to a new ring from now on. The program empties the old one first, so
   * their order stays.
   */
  resize(entries: number): CqCreated {
    const ring = this.#newRing(entries, this.#stride());
    this.#previous = this.#ring;
    this.#ring = ring;
    this.#ring.state = this.#previous.state;
    this.#next = this.#published = 0;
    return this.created;
  }

  get users(): number {
    return this.#users;
  }

  /** One queue more or less completes here. */
  use(by: 1 | -1): void {
    this.#users += by;
  }

  /** Completions that the program has not taken. */
  get outstanding(): number {
    return this.#ring.used + (this.#previous?.used ?? 0);
  }

  get dirty(): boolean {
    return this.#next !== this.#published;
  }

  /** The program sleeps until something has completed. One that works by events finds some entries without being woken. */
  get wakes(): boolean {
    return this.#silent < SILENT;
  }

  /** The words of the ring, where a claimed entry is written. */
  get words(): Uint32Array {
    return this.#ring.words;
  }

  /**
   * Claims the next entry: its first word, or −1 if there is no room: the queue has overrun and is of no further
   * use (IBV_EVENT_CQ_ERR). The entry is the caller's to fill until `commit`.
   */
  claim(): number {
    const ring = this.#ring;
    if (this.#overrun || !ring.hasRoom(this.#next, ring.capacity)) {
      // A waiter for solicited completions gets it, too, as it gets a failure.
      if (!this.#overrun) this.#solicited = true;
      this.#overrun = true;
      ring.state = 1;
      return -1;
    }
    const w = ring.wordOf(this.#next);
    const { words } = ring;
    words[w + Cqe.BYTE_LEN] = 0;
    words[w + Cqe.IMMEDIATE] = 0;
    words[w + Cqe.SRC_QP] = 0;
    words[w + Cqe.FLAGS] = 0;
    words[w + Cqe.VENDOR_ERR] = 0;
    words[w + Cqe.PKEY_INDEX] = 0;
    words[w + Cqe.SL] = 0;
    if (this.tagged) words[w + Cqe.TAG_HIGH] = words[w + Cqe.TAG_LOW] = words[w + Cqe.TAG_DATA] = 0;
    return w;
  }

  /** Whether so many entries can be written behind each other, from `next` on, and have nothing but the usual words. */
  hasRoom(count: number): boolean {
    const ring = this.#ring;
    if (this.#overrun || this.stamped || this.tagged || count > ring.capacity) return false;
    return ring.hasRoom((this.#next + count - 1) | 0, ring.capacity);
  }

  /** Index of the entry that is written next. */
  get next(): number {
    return this.#next;
  }

  /** So many entries were written, all words of each. @param solicited as for `commit` */
  commitRun(count: number, solicited: boolean): void {
    this.#next = (this.#next + count) | 0;
    this.#solicited ||= solicited;
  }

  /**
   * The claimed entry is written.
   *
   * @param solicited raises a solicited-only notification: a solicited receive, or any failure
   */
  commit(solicited: boolean): void {
    this.#next = (this.#next + 1) | 0;
    this.#solicited ||= solicited;
  }

  /** Publishes the written entries to the program. True if it asked for an event. */
  publish(): boolean {
    if (!this.dirty && !this.#solicited) return false;
    this.#published = this.#next;
    this.#ring.publish(this.#next);
    const solicited = this.#solicited;
    this.#solicited = false;
    const told = this.#ring.disarm(solicited);
    const wakes = (this.#previous?.disarm(solicited) ?? false) || told;
    if (wakes) this.#silent = 0;
    else if (this.#silent < SILENT) this.#silent++;
    return wakes;
  }
}
