/**
 * The replies that a responder owes its requester, in the order in which they have to leave: acknowledgements, READ
 * responses, atomic results, a NAK.
 *
 * Responses leave in PSN order (IBTA vol 1 §9.7.5.1.3): an ACK never overtakes an unfinished READ.
 * Successive ACKs are coalesced, because an ACK acknowledges everything before it.
 */
import { NakCode, psnAdd, psnDiff } from '@node-roce/wire';
import type { MemoryRegion } from '../region.ts';
import type { RemoteTarget } from './remote-target.ts';

export const ReplyKind = { ACK: 0, READ: 1, ATOMIC: 2, NAK: 3 } as const;

/** Words of a reply. */
const Word = {
  KIND: 0,
  /** 1: answers a request that was executed before. */
  DUPLICATE: 1,
  /** ACK, NAK, ATOMIC: the PSN to send. READ: the first response's PSN. */
  PSN: 2,
  MSN: 3,
  /** AETH syndrome of a NAK or RNR NAK. */
  SYNDROME: 4,
  /** READ: bytes, responses in all, and responses sent. */
  LENGTH: 5,
  PACKETS: 6,
  SENT: 7,
  /** ATOMIC: the value that was there before. */
  VALUE_HIGH: 5,
  VALUE_LOW: 6,
} as const;
const WORDS = 8;
const START_ROOM = 8;
const NO_WORDS = new Uint32Array(0);
const NO_OFFSETS = new Float64Array(0);
const NO_REGIONS: (MemoryRegion | undefined)[] = [];

/**
 * Owns a queue that grows up to the bound below, and keeps its memory.
 *
 * Invariants: at most `max_dest_rd_atomic` first answers to READs and atomics and as many answers to
 * duplicates wait, and one NAK; one that ends the connection is the last reply. ACKs that follow one another are
 * one. So there are at most four replies for each resource, and a few more.
 */
export class ReplyQueue {
  #words = NO_WORDS;
  /** READ: region (none for a READ of nothing), and offset of its first byte in the backing buffer. */
  #regions = NO_REGIONS;
  #offsets = NO_OFFSETS;
  #room = 0;
  #head = 0;
  #count = 0;
  #pending = 0;
  #duplicates = 0;

  /** Forgets everything. */
  clear(): void {
    this.#regions.fill(undefined);
    this.#head = this.#count = this.#pending = this.#duplicates = 0;
  }

  get count(): number {
    return this.#count;
  }

  /** READs and atomics whose first answer waits. */
  get pending(): number {
    return this.#pending;
  }

  /** READs and atomics of which a second answer waits. */
  get duplicates(): number {
    return this.#duplicates;
  }

  /** Ends with a NAK that ends the connection. */
  get dying(): boolean {
    const w = this.#last();
    return w >= 0 && this.#words[w + Word.KIND] === ReplyKind.NAK && isFatal(this.#words[w + Word.SYNDROME]);
  }

  // ------------------------------------------------- the reply to send next

  get kind(): number {
    return this.#words[this.#head * WORDS + Word.KIND];
  }
  /** It answers a request that was answered before. */
  get duplicate(): boolean {
    return this.#words[this.#head * WORDS + Word.DUPLICATE] === 1;
  }
  get psn(): number {
    return this.#words[this.#head * WORDS + Word.PSN];
  }
  get msn(): number {
    return this.#words[this.#head * WORDS + Word.MSN];
  }
  get syndrome(): number {
    return this.#words[this.#head * WORDS + Word.SYNDROME];
  }
  get valueHigh(): number {
    return this.#words[this.#head * WORDS + Word.VALUE_HIGH];
  }
  get valueLow(): number {
    return this.#words[this.#head * WORDS + Word.VALUE_LOW];
  }
  get length(): number {
    return this.#words[this.#head * WORDS + Word.LENGTH];
  }
  get packets(): number {
    return this.#words[this.#head * WORDS + Word.PACKETS];
  }
  get sent(): number {
    return this.#words[this.#head * WORDS + Word.SENT];
  }
  get region(): MemoryRegion | undefined {
    return this.#regions[this.#head];
  }
  get offset(): number {
    return this.#offsets[this.#head];
  }

  /** The next `count` responses of the READ at the head were added to a batch; the last one ends it. */
  responded(count: number): void {
    const w = this.#head * WORDS;
    this.#words[w + Word.SENT] += count;
    if (this.#words[w + Word.SENT] === this.#words[w + Word.PACKETS]) this.shift();
  }

  /** The reply at the head was added to a batch. */
  shift(): void {
    this.#uncount(this.#head * WORDS);
    this.#regions[this.#head] = undefined;
    this.#head = this.#head + 1 === this.#room ? 0 : this.#head + 1;
    this.#count--;
  }

  // -------------------------------------------------------- what is to come

  /** Acknowledges up to `psn`, in one packet with the ACK that waits at the end, if one does. */
  acknowledge(psn: number, msn: number): void {
    const words = this.#words;
    const w = this.#last();
    if (w >= 0 && words[w + Word.KIND] === ReplyKind.ACK) {
      if (psnDiff(psn, words[w + Word.PSN]) > 0) words[w + Word.PSN] = psn;
      words[w + Word.MSN] = msn;
      return;
    }
    this.#push(ReplyKind.ACK, psn, msn, false);
  }

  pushNak(psn: number, msn: number, syndrome: number): void {
    const w = this.#push(ReplyKind.NAK, psn, msn, false);
    this.#words[w + Word.SYNDROME] = syndrome;
  }

  /** Drops the waiting NAK: the packet that it asks for has come. */
  dropNak(): void {
    for (let i = this.#count - 1; i >= 0; i--) {
      const w = this.#at(i) * WORDS;
      if (this.#words[w + Word.KIND] !== ReplyKind.NAK) continue;
      for (let j = i + 1; j < this.#count; j++) this.#move(this.#at(j), this.#at(j - 1));
      this.#count--;
      return;
    }
  }

  pushAtomic(psn: number, msn: number, valueHigh: number, valueLow: number, duplicate: boolean): void {
    const w = this.#push(ReplyKind.ATOMIC, psn, msn, duplicate);
    this.#words[w + Word.VALUE_HIGH] = valueHigh;
    this.#words[w + Word.VALUE_LOW] = valueLow;
  }

  /** Answers a READ of `length` bytes at `target` with so many responses. */
  pushRead(
    psn: number,
    msn: number,
    target: RemoteTarget,
    length: number,
    packets: number,
    duplicate: boolean,
  ): void {
    const w = this.#push(ReplyKind.READ, psn, msn, duplicate);
    this.#words[w + Word.LENGTH] = length;
    this.#words[w + Word.PACKETS] = packets;
    this.#words[w + Word.SENT] = 0;
    this.#regions[w / WORDS] = target.region;
    this.#offsets[w / WORDS] = target.offset;
  }

  /** Whether the result of the atomic at this PSN waits to be sent. */
  answersAtomic(psn: number): boolean {
    for (let i = 0; i < this.#count; i++) {
      const w = this.#at(i) * WORDS;
      if (this.#words[w + Word.KIND] === ReplyKind.ATOMIC && this.#words[w + Word.PSN] === psn) return true;
    }
    return false;
  }

  /**
   * Lets a READ that waits answer a duplicate, too, which asks for `packets` responses from `psn` on, up to the same
   * end. If some of them have left, the READ begins anew at `psn`: the duplicate is a request of its own, whose first
   * response is FIRST or ONLY (§9.4.4). @returns whether there is such a READ
   */
  resumeRead(psn: number, packets: number, mtu: number): boolean {
    const words = this.#words;
    for (let i = 0; i < this.#count; i++) {
      const at = this.#at(i);
      const w = at * WORDS;
      if (words[w + Word.KIND] !== ReplyKind.READ) continue;
      const skipped = psnDiff(psn, words[w + Word.PSN]);
      if (skipped < 0 || skipped + packets !== words[w + Word.PACKETS]) continue;
      if (words[w + Word.SENT] <= skipped) return true;
      words[w + Word.PSN] = psn;
      words[w + Word.PACKETS] = packets;
      words[w + Word.SENT] = 0;
      words[w + Word.LENGTH] -= skipped * mtu;
      this.#offsets[at] += skipped * mtu;
      return true;
    }
    return false;
  }

  /**
   * Drops READs that wait, and the replies behind the first READ whose first answer waits: an ACK there would mean that it was
   * answered. A duplicate READ does not hold back the ACKs behind it, since its answer may have arrived long ago: they are owed.
   */
  dropReads(): void {
    const words = this.#words;
    let kept = 0;
    let isOpen = false;
    for (let i = 0; i < this.#count; i++) {
      const at = this.#at(i);
      const isRead = words[at * WORDS + Word.KIND] === ReplyKind.READ;
      if (isRead && words[at * WORDS + Word.DUPLICATE] === 0) isOpen = true;
      if (isRead || isOpen) {
        this.#uncount(at * WORDS);
        this.#regions[at] = undefined;
      } else if (kept++ < i) this.#move(at, this.#at(kept - 1));
    }
    this.#count = kept;
  }

  /**
   * Drops repeated READs, and puts a NAK in the place of the first other one and of all behind it: the peer would take the NAK that
   * ends the connection for an implied one, and ask for the responses until its retries are used up.
   */
  refuseReads(syndrome: number): void {
    if (!this.dying) return;
    const words = this.#words;
    let kept = 0;
    for (let i = 0; i < this.#count; i++) {
      const at = this.#at(i);
      const w = at * WORDS;
      if (words[w + Word.KIND] !== ReplyKind.READ) {
        if (kept++ < i) this.#move(at, this.#at(kept - 1));
        continue;
      }
      if (words[w + Word.DUPLICATE] === 0) {
        const psn = psnAdd(words[w + Word.PSN], words[w + Word.SENT]);
        const msn = words[w + Word.MSN];
        this.#drop(i);
        this.#count = kept;
        this.pushNak(psn, msn, syndrome);
        return;
      }
      this.#uncount(w);
      this.#regions[at] = undefined;
    }
    this.#count = kept;
  }

  /** Forgets the replies from number `first` on; the count is the caller's. */
  #drop(first: number): void {
    for (let i = first; i < this.#count; i++) {
      const at = this.#at(i);
      this.#uncount(at * WORDS);
      this.#regions[at] = undefined;
    }
  }

  /** The violated invariants of this object's state, if any. */
  fault(resources: number): string | undefined {
    let pending = 0;
    let duplicates = 0;
    let naks = 0;
    for (let i = 0; i < this.#count; i++) {
      const w = this.#at(i) * WORDS;
      const kind = this.#words[w + Word.KIND];
      if (kind === ReplyKind.READ || kind === ReplyKind.ATOMIC) {
        if (this.#words[w + Word.DUPLICATE] === 1) duplicates++;
        else pending++;
      }
      if (kind === ReplyKind.NAK) {
        if (isFatal(this.#words[w + Word.SYNDROME])) {
          if (i !== this.#count - 1) return 'replies wait behind the NAK that ends the connection';
        } else if (++naks > 1) return 'two NAKs wait';
      }
      if (kind === ReplyKind.READ && this.#words[w + Word.SENT] >= this.#words[w + Word.PACKETS]) {
        return 'a READ waits whose responses have left';
      }
    }
    if (pending !== this.#pending || duplicates !== this.#duplicates) {
      return `${pending} answers and ${duplicates} repeated ones wait, ${this.#pending} and ${this.#duplicates} counted`;
    }
    if (pending > resources || duplicates > resources) {
      return `${pending} answers and ${duplicates} repeated ones wait for ${resources} resources`;
    }
    return undefined;
  }

  #at(i: number): number {
    const at = this.#head + i;
    return at >= this.#room ? at - this.#room : at;
  }

  /** First word of the last reply, or −1. */
  #last(): number {
    return this.#count === 0 ? -1 : this.#at(this.#count - 1) * WORDS;
  }

  #push(kind: number, psn: number, msn: number, duplicate: boolean): number {
    if (this.#count === this.#room) this.#grow();
    const words = this.#words;
    const w = this.#at(this.#count++) * WORDS;
    words[w + Word.KIND] = kind;
    words[w + Word.DUPLICATE] = duplicate ? 1 : 0;
    words[w + Word.PSN] = psn;
    words[w + Word.MSN] = msn;
    if (duplicate) this.#duplicates++;
    else if (kind === ReplyKind.READ || kind === ReplyKind.ATOMIC) this.#pending++;
    return w;
  }

  #move(from: number, to: number): void {
    this.#words.copyWithin(to * WORDS, from * WORDS, from * WORDS + WORDS);
    this.#offsets[to] = this.#offsets[from];
    this.#regions[to] = this.#regions[from];
    this.#regions[from] = undefined;
  }

  #uncount(w: number): void {
    const kind = this.#words[w + Word.KIND];
    if (this.#words[w + Word.DUPLICATE] === 1) this.#duplicates--;
    else if (kind === ReplyKind.READ || kind === ReplyKind.ATOMIC) this.#pending--;
  }

  /** Doubles the room; the waiting replies move to its start. A queue pair that never answers has none. */
  #grow(): void {
    const room = Math.max(START_ROOM, 2 * this.#room);
    const words = new Uint32Array(room * WORDS);
    const offsets = new Float64Array(room);
    const regions: (MemoryRegion | undefined)[] = new Array(room).fill(undefined);
    for (let i = 0; i < this.#count; i++) {
      const at = this.#at(i);
      words.set(this.#words.subarray(at * WORDS, at * WORDS + WORDS), i * WORDS);
      offsets[i] = this.#offsets[at];
      regions[i] = this.#regions[at];
    }
    this.#words = words;
    this.#offsets = offsets;
    this.#regions = regions;
    this.#room = room;
    this.#head = 0;
  }
}

/** Whether a NAK of this syndrome ends the connection: not a sequence NAK, not an RNR NAK. */
function isFatal(syndrome: number): boolean {
  return syndrome > NakCode.PSN_SEQUENCE_ERROR;
}
