/**
 * The requests of one side of a reliable connection: requests of every kind with memory of their own, and all that
 * must come of them. The program that posts them may end at any time, so each thing is checked as soon as it is settled.
 */
import {
  INLINE_BYTES,
  type ModelCompletion,
  type ModelOpcode,
  readU64,
  type SimSend,
  type VariableQp,
  writeU64,
} from '@node-roce/sim';
import type { Random } from '@node-roce/wire';
import { require, same } from '../../../packages/sim/src/network/workload-checks.ts';
import type { Inbox } from './inbox.ts';
import type { Lease, MemoryBook } from './memory-book.ts';
import { fillPattern, matchPattern } from './pattern.ts';

/** The memory of a session that a peer may reach: first what it reads, then what it writes, each byte once, then 64-bit words. */
const SOURCE_BYTES = 16_384;
const WRITTEN_BYTES = 65_536;
const WORDS = 8;
const WORDS_AT = SOURCE_BYTES + WRITTEN_BYTES;
const EXPOSED_BYTES = WORDS_AT + 8 * WORDS;

/** Work requests of windows have numbers from here on. */
export const WINDOW_WR = 1_000_000;

export interface StreamOptions {
  qp: VariableQp;
  book: MemoryBook;
  random: Random;
  /** Requests outstanding at once. */
  depth: number;
  /** Chance that a request has a region of its own, deregistered as soon as it is done; else all share one. */
  fresh: number;
  /** Kinds of requests, each as often as it is named. */
  kinds: readonly ModelOpcode[];
  longest: number;
}

interface Request {
  send: SimSend;
  lease: Lease;
  own: boolean;
  tag: number;
  /** READ: where in the peer's source; atomics: what the word was. */
  answer?: { from: number } | { original: bigint };
}

interface Message {
  completion: Omit<ModelCompletion, 'wrId'>;
  tag: number;
}

/** The requests of one side of a session, with their expected effects. */
export class Stream {
  readonly #options: StreamOptions;
  readonly #shared: Lease;
  /** The memory that the peer lets this side reach. */
  #exposed!: { lease: Lease; rkey: number; tag: number };
  readonly #words: bigint[] = [];
  #writtenTo = SOURCE_BYTES;
  readonly #requests: Request[] = [];
  readonly #messages: Message[] = [];
  #done = 0;
  #received = 0;
  /** Status of the request that ended the connection. */
  failure: string | undefined;

  constructor(options: StreamOptions) {
    this.#options = options;
    this.#shared = options.book.lease(options.depth * (options.longest + 8));
  }

  /** The peer's memory; nothing is posted before. */
  aim(lease: Lease, rkey: number, tag: number): void {
    this.#exposed = { lease, rkey, tag };
    for (let i = 0; i < WORDS; i++) this.#words.push(readU64(lease.bytes.subarray(WORDS_AT + 8 * i)));
  }

  get isAimed(): boolean {
    return this.#exposed !== undefined;
  }

  get depth(): number {
    return this.#options.depth;
  }

  get posted(): number {
    return this.#requests.length;
  }

  get outstanding(): number {
    return this.#requests.length - this.#done;
  }

  /** All that was posted is done, and every message has arrived. */
  get isSettled(): boolean {
    return this.outstanding === 0 && this.#received === this.#messages.length;
  }

  get messagesDue(): number {
    return this.#messages.length - this.#received;
  }

  get received(): number {
    return this.#received;
  }

  /** A region that an unfinished request still names. */
  get leaseInUse(): Lease | undefined {
    return this.#requests.slice(this.#done).find(({ own, lease }) => own && lease.isOpen)?.lease;
  }

  /** Posts one request. */
  post(isLast: boolean): void {
    const { random, qp, depth } = this.#options;
    const index = this.#requests.length;
    const send: SimSend = {
      wrId: index,
      opcode: isLast ? 'SEND' : random.pick(this.#options.kinds),
      offset: 0,
      length: 0,
      // Of unsignaled ones alone nobody would hear that they are done.
      signaled: isLast || random.chance(0.7) || index % depth === depth - 1,
      // The peer may go once it has the last message: READs before it are over by then.
      fence: isLast || random.chance(0.1),
    };
    const request = this.#draw(send);
    this.#requests.push(request);
    qp.postSend(send);
    // The memory of an inline request is free again.
    if (send.inline && request.own) this.#release(request.lease);
  }

  #draw(send: SimSend): Request {
    const { random, longest, book, depth, fresh } = this.#options;
    if (send.opcode === 'FLUSH') return this.#drawFlush(send);
    const isAtomic = send.opcode.startsWith('ATOMIC_');
    const drawn = random.chance(0.5) ? random.between(0, 200) : random.between(0, longest);
    send.length = isAtomic ? 8 : drawn;
    if (send.opcode.startsWith('RDMA_WRITE') && this.#writtenTo + send.length > WORDS_AT)
      send.opcode = 'SEND';
    const own = send.length > 0 && random.chance(fresh);
    const lease = own ? book.lease(send.length) : this.#shared;
    send.region = lease.region;
    send.offset = own ? 0 : (send.wrId % depth) * (longest + 8);
    const tag = random.next();
    const request: Request = { send, lease, own, tag };
    if (send.opcode === 'ATOMIC_WRITE') this.#drawAtomicWrite(request);
    else if (isAtomic) this.#drawAtomic(request);
    else if (send.opcode === 'RDMA_READ') this.#drawRead(request);
    else this.#drawMessage(request);
    return request;
  }

  #drawMessage({ send, lease, tag }: Request): void {
    const { random } = this.#options;
    const { length, opcode, offset } = send;
    fillPattern(lease.bytes.subarray(offset, offset + length), tag);
    send.inline = length > 0 && length <= INLINE_BYTES && random.chance(0.3);
    if (opcode.startsWith('RDMA_WRITE')) {
      this.#reach(send, this.#writtenTo);
      this.#writtenTo += length;
    }
    if (opcode.endsWith('_WITH_IMM')) send.immediate = random.next();
    if (opcode === 'RDMA_WRITE') return;
    const isSend = opcode.startsWith('SEND');
    this.#messages.push({
      tag,
      completion: {
        status: 'SUCCESS',
        opcode: isSend ? 'RECV' : 'RECV_RDMA_WITH_IMM',
        byteLen: length,
        ...(send.immediate === undefined ? {} : { immediate: send.immediate }),
      },
    });
  }

  /** Of all that was written so far. A window gives no right to it, so that it asks for nothing there. */
  #drawFlush(send: SimSend): Request {
    const { lease, rkey } = this.#exposed;
    const placement = rkey === lease.region.rkey ? 1 : 0;
    this.#reach(send, SOURCE_BYTES);
    send.flush = { length: this.#writtenTo - SOURCE_BYTES, placement, selectivity: 0 };
    return { send, lease: this.#shared, own: false, tag: 0 };
  }

  #drawAtomicWrite({ send, lease }: Request): void {
    const { random } = this.#options;
    const word = random.between(0, WORDS - 1);
    const value = (BigInt(random.next()) << 32n) | BigInt(random.next());
    writeU64(lease.bytes.subarray(send.offset, send.offset + 8), value);
    send.inline = random.chance(0.3);
    this.#reach(send, WORDS_AT + 8 * word);
    this.#words[word] = value;
  }

  #drawRead(request: Request): void {
    const { send } = request;
    const from = this.#options.random.between(0, SOURCE_BYTES - send.length);
    this.#reach(send, from);
    request.answer = { from };
  }

  #drawAtomic(request: Request): void {
    const { random } = this.#options;
    const { send } = request;
    const word = random.between(0, WORDS - 1);
    const original = this.#words[word];
    const wide = (BigInt(random.next()) << 32n) | BigInt(random.next());
    this.#reach(send, WORDS_AT + 8 * word);
    request.answer = { original };
    if (send.opcode === 'ATOMIC_FETCH_AND_ADD') {
      send.compareAdd = wide;
      this.#words[word] = BigInt.asUintN(64, original + wide);
    } else {
      send.compareAdd = random.chance(0.5) ? original : wide;
      send.swap = wide;
      if (send.compareAdd === original) this.#words[word] = wide;
    }
  }

  #reach(send: SimSend, offset: number): void {
    const { lease, rkey } = this.#exposed;
    send.remoteAddress = lease.region.base + BigInt(offset);
    send.rkey = rkey;
  }

  #release(lease: Lease): void {
    this.#options.book.release(lease, this.now());
  }

  /** How the requests of the receiving side ended: for messages. */
  peerFailure: () => string = () => '';

  /** Time, µs: set by the session. */
  now: () => number = () => 0;

  /**
   * Send completions of the side that posts. @param mayFail what may have ended the connection; nothing, before anybody
   * did something to it
   * @throws Error for anything that must not be
   */
  poll(completions: readonly ModelCompletion[], mayFail: readonly string[], peerListens: boolean): void {
    for (const completion of completions) {
      const { wrId, status } = completion;
      if (wrId >= WINDOW_WR) continue;
      require(wrId >= this.#done &&
        wrId < this.posted, 'a request completed twice or out of order', completion);
      if (status === 'SUCCESS') {
        require(this.failure === undefined, 'a request succeeded after one that failed', completion);
        for (let i = this.#done; i < wrId; i++) this.#skip(i);
        this.#succeed(this.#requests[wrId], peerListens);
      } else {
        const expected = this.failure === undefined ? [...mayFail, 'WR_FLUSH_ERR'] : ['WR_FLUSH_ERR'];
        require(mayFail.length > 0, 'a connection ended that nobody ended', completion);
        require(expected.includes(status), 'a request failed otherwise', { completion, expected });
        // Unsignaled ones before it are done; once one failed, each has a completion.
        for (; this.failure === undefined && this.#done < wrId; this.#done++) this.#skip(this.#done);
        require(wrId === this.#done, 'a request was not flushed', { wrId, expected: this.#done });
        this.failure ??= status;
        this.#settle(this.#requests[wrId]);
      }
      this.#done = wrId + 1;
    }
  }

  #skip(index: number): void {
    const request = this.#requests[index];
    require(request.send.signaled === false, 'a signaled request gave no completion', { index });
    this.#succeed(request, true);
  }

  #succeed(request: Request, peerListens: boolean): void {
    const { send, lease, answer } = request;
    const bytes = lease.bytes.subarray(send.offset, send.offset + send.length);
    if (answer !== undefined && lease.isOpen) {
      const right =
        'from' in answer
          ? matchPattern(bytes, this.#exposed.tag, answer.from) === send.length
          : readU64(bytes) === answer.original;
      require(right, 'an answer is wrong', send);
    }
    if (peerListens) this.#checkDelivered(request);
    this.#settle(request);
  }

  /** Checks that acknowledged data are there: in the peer's memory, or in a receive that has completed. */
  #checkDelivered({ send, tag }: Request): void {
    const { lease } = this.#exposed;
    if (send.opcode.startsWith('RDMA_WRITE') && lease.isOpen) {
      const at = Number(send.remoteAddress! - lease.region.base);
      const whole = matchPattern(lease.bytes.subarray(at, at + send.length), tag) === send.length;
      require(whole, 'a WRITE was acknowledged and is not there', send);
    }
    const message = this.#messages.findIndex((m) => m.tag === tag);
    require(message < this.#received, 'a message was acknowledged and did not arrive', send);
  }

  #settle({ own, lease }: Request): void {
    if (own) this.#release(lease);
  }

  /** Receive completions of the other side. @throws Error */
  receive(completions: readonly ModelCompletion[], inbox: Inbox, mayFail: readonly string[]): void {
    for (const { solicited: _, wrId, ...completion } of completions) {
      if (completion.status !== 'SUCCESS') {
        if (mayFail.length === 0)
          require(false, 'a receive failed', { ...completion, sends: this.peerFailure() });
        require([...mayFail, 'WR_FLUSH_ERR'].includes(
          completion.status,
        ), 'a receive failed otherwise', completion);
        inbox.take(wrId);
        continue;
      }
      const due = this.#messages[this.#received];
      require(due !== undefined, 'a message was received twice', completion);
      require(same(completion, due.completion), 'a receive completed otherwise', { completion, due });
      const bytes = inbox.take(wrId);
      if (completion.opcode === 'RECV') {
        const { byteLen = 0 } = completion;
        const whole = matchPattern(bytes.subarray(0, byteLen), due.tag) === byteLen;
        require(whole, 'a message arrived damaged', { wrId });
      }
      this.#received++;
    }
  }

  /** The peer's memory: of each WRITE a first part, or all of it, and nothing else. @throws Error */
  checkExposed(): void {
    const { lease, tag } = this.#exposed ?? {};
    if (lease === undefined || !lease.isOpen) return;
    const source = lease.bytes.subarray(0, SOURCE_BYTES);
    require(matchPattern(source, tag) === SOURCE_BYTES, 'memory that is only read was written', {});
    for (const { send, tag } of this.#requests) {
      if (!send.opcode.startsWith('RDMA_WRITE')) continue;
      const at = Number(send.remoteAddress! - lease.region.base);
      const part = matchPattern(lease.bytes.subarray(at, at + send.length), tag);
      require(lease.isUntouched(at + part, send.length - part), 'a WRITE left other bytes', send);
    }
    const rest = WORDS_AT - this.#writtenTo;
    require(lease.isUntouched(this.#writtenTo, rest), 'memory was written that nobody wrote to', {});
  }

  /** The side that posts is gone: its memory is deregistered. */
  close(): void {
    for (const { own, lease } of this.#requests.slice(this.#done)) if (own) this.#release(lease);
    this.#release(this.#shared);
  }
}

/** Memory that a peer may reach, laid out as `Stream` expects it. */
export function expose(book: MemoryBook, tag: number): Lease {
  const lease = book.lease(EXPOSED_BYTES);
  fillPattern(lease.bytes.subarray(0, SOURCE_BYTES), tag);
  for (let i = 0; i < WORDS; i++)
    writeU64(lease.bytes.subarray(WORDS_AT + 8 * i), BigInt(tag) * BigInt(i + 3));
  return lease;
}
