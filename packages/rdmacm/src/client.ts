/**
 * Requests and answers over message connections: a pool that connects again, and the side that answers.
 *
 * A message is a kind (one byte), a number (four bytes, big-endian) and the bytes of the program. A table of the server is read without it.
 */
import { randomInt } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import { RoceError } from '@node-roce/verbs-api';
import { orAborted } from './attempt.ts';
import { type ConnectOptions, connect } from './connect.ts';
import { Deadline } from './deadline.ts';
import { closedError } from './errors.ts';
import type { MessageConnection } from './message-connection.ts';
import { checkAnswerOptions, checkClientOptions, checkGet, checkKey, checkRequest } from './options.ts';
import { Slots } from './slots.ts';
import { bytesOf, Table } from './table.ts';
import { lookUp, parsePlace, placeBytes, type TablePlace } from './table-reader.ts';

const HEADER = 5;
const BACKOFF = 50;
const MAX_BACKOFF = 5000;
/** WHERE asks for the place of the server's table. */
const Kind = { REQUEST: 0, ANSWER: 1, FAILURE: 2, WHERE: 3 } as const;

/** Options of a `Client`. */
export interface ClientOptions extends Omit<ConnectOptions, 'signal'> {
  /** Connections at a time; one is added where all have a request under way. Default 1. */
  connections?: number;
  /** Milliseconds that a request may take, the wait for a connection included; 0 for no limit. Default 30,000. */
  requestTimeout?: number;
  /** Milliseconds before a second attempt to connect; doubled each time up to `maxBackoff`, and drawn between a half and all of it. Default 50. */
  backoff?: number;
  /** Default 5000. */
  maxBackoff?: number;
}

/** One request: milliseconds of its own, and a signal. */
export interface RequestOptions {
  /** Milliseconds in place of `requestTimeout`. */
  timeout?: number;
  /** Gives the request up. */
  signal?: AbortSignal | undefined;
}

function message(kind: number, number: number, body: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(HEADER + body.length);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, kind);
  view.setUint32(1, number);
  bytes.set(body, HEADER);
  return bytes;
}

/** Milliseconds between a half and all of a pause. */
const drawn = (pause: number): number => pause / 2 + randomInt(Math.ceil(pause / 2) + 1);

interface Waiter {
  resolve(answer: Uint8Array): void;
  reject(error: unknown): void;
}

/** A connection of the pool, and the requests that wait for their answers on it. */
class Line {
  readonly connection: MessageConnection;
  readonly waiting = new Map<number, Waiter>();
  readonly ended: Promise<void>;
  /** Requests that have this connection, those that are not sent yet among them. */
  load = 0;
  /** It has refused a request, which is not sent. */
  #isOver = false;
  #next = 0;
  /** Where the server's table is, once it was asked for. */
  #table: Promise<TablePlace | undefined> | undefined;
  readonly #end: AbortSignal;

  /** @param end of the client */
  constructor(connection: MessageConnection, end: AbortSignal) {
    this.connection = connection;
    this.#end = end;
    this.ended = this.#read();
  }

  /** Whether it takes requests. It stays in the pool for a while after its end, until it is closed. */
  get isOpen(): boolean {
    return !this.#isOver && this.connection.id.state === 'CONNECTED';
  }

  async #read(): Promise<void> {
    let reason: unknown = closedError(`the connection with ${this.connection.peer} has ended`);
    try {
      for await (const bytes of this.connection) this.#answered(bytes);
    } catch (error) {
      reason = error;
    }
    for (const { reject } of this.waiting.values()) reject(reason);
    this.waiting.clear();
    await this.connection.close();
  }

  /** An answer of a request that was given up is dropped, as is a message of another protocol. */
  #answered(bytes: Uint8Array): void {
    if (bytes.length < HEADER) return;
    const number = new DataView(bytes.buffer, bytes.byteOffset).getUint32(1);
    const waiter = this.waiting.get(number);
    if (!waiter) return;
    this.waiting.delete(number);
    const body = bytes.subarray(HEADER);
    if (bytes[0] === Kind.ANSWER) waiter.resolve(body);
    else waiter.reject(failureError(this.connection.peer, new TextDecoder().decode(body)));
  }

  /** Sends a request and resolves with its answer; with undefined where the connection ended before the request was sent. */
  async request(
    body: Uint8Array,
    signal: AbortSignal,
    kind: number = Kind.REQUEST,
  ): Promise<Uint8Array | undefined> {
    const number = this.#next;
    this.#next = (this.#next + 1) >>> 0;
    let onAbort = () => {};
    const answer = new Promise<Uint8Array>((resolve, reject) => {
      this.waiting.set(number, { resolve, reject });
      onAbort = () => reject(signal.reason);
      signal.addEventListener('abort', onAbort, { once: true });
    });
    answer.catch(() => {}); // `send` may reject first.
    try {
      if (await this.connection.offer(message(kind, number, body), { signal })) return await answer;
      this.#isOver = true;
      return undefined;
    } finally {
      this.waiting.delete(number);
      signal.removeEventListener('abort', onAbort);
    }
  }

  /** Reads a value in the server's table; resolves with undefined where the connection has ended, which has no effect there. */
  async get(key: Uint8Array, signal: AbortSignal): Promise<{ value: Uint8Array | undefined } | undefined> {
    try {
      const place = await orAborted(this.#place(), signal);
      if (place === undefined) return undefined;
      const { addr, rkey } = place;
      const read = (offset: number, length: number) =>
        this.connection.readRemote(length, { addr: addr + BigInt(offset), rkey }, signal);
      const found = await lookUp(key, place, this.connection.peer, read, signal);
      this.#isOver ||= found === undefined;
      return found;
    } catch (error) {
      if (signal.aborted || !hasEnded(error as RoceError)) throw error;
      this.#isOver = true;
      return undefined;
    }
  }

  /** One question for all who read; the next one asks again where it has failed. */
  #place(): Promise<TablePlace | undefined> {
    const ask = async () => {
      const answer = await this.request(new Uint8Array(0), this.#end, Kind.WHERE);
      return answer && parsePlace(this.connection.peer, answer, this.connection.longestRead);
    };
    this.#table ??= ask().catch((error) => {
      this.#table = undefined;
      throw error;
    });
    return this.#table;
  }
}

/** The connection has ended, and not by an answer of the peer's adapter to what was asked of it. */
const hasEnded = ({ code, attribute = '' }: RoceError): boolean =>
  code === 'ERR_ROCE_CLOSED' || (code === 'ERR_ROCE_COMPLETION' && !attribute.startsWith('REM_'));

const failureError = (peer: string, text: string): RoceError =>
  new RoceError('ERR_ROCE_REQUEST_FAILED', `${peer} answers: ${text}`, { errno: 'EIO' });

/**
 * Sends requests to one server, whose program answers them by `answerRequests`. It connects with the first request, and again when a
 * connection has ended: requests wait for that. A request that was sent on a connection which ended is rejected, as its effect
 * is not known; the program repeats it where that does no harm. A request that still waited for a slot goes to the next connection.
 */
export class Client implements AsyncDisposable {
  readonly #target: string;
  readonly #options: ClientOptions;
  readonly #lines = new Set<Line>();
  #connecting: Promise<Line> | undefined;
  readonly #closed = new AbortController();
  #closing: Promise<void> | undefined;

  /** @param target `host:port`, as `connect` takes it */
  constructor(target: string, options: ClientOptions = {}) {
    checkClientOptions(options);
    this.#target = target;
    this.#options = options;
    // Each request listens.
    setMaxListeners(0, this.#closed.signal);
  }

  /** Requests that wait for their answers. */
  get pending(): number {
    return [...this.#lines].reduce((sum, { waiting }) => sum + waiting.size, 0);
  }

  /** Connections that are open. */
  get connections(): number {
    return this.#lines.size;
  }

  /**
   * Sends a request and resolves with its answer.
   *
   * Rejects with ERR_ROCE_REQUEST_FAILED where the server's handler has thrown, with ERR_ROCE_TIMEOUT at its deadline, with the signal's
   * reason, and as `send`.
   */
  async request(body: Uint8Array | string, options: RequestOptions = {}): Promise<Uint8Array> {
    checkRequest(body, options);
    const bytes = bytesOf(body);
    return this.#onLine(options, (line, signal) => line.request(bytes, signal));
  }

  /**
   * Reads the value of a key in the `Table` that the server gave to `answerRequests`, by RDMA READ: the server's program has no part in it.
   * Resolves with undefined where the table has no such key. Where the connection ends, it reads again on the next one.
   *
   * Rejects with ERR_ROCE_TABLE_CHANGING where the entry has changed during each of 12 READs, with ERR_ROCE_REQUEST_FAILED where the server has no
   * table, with ERR_ROCE_TIMEOUT at its deadline, and with the signal's reason.
   */
  async get(key: Uint8Array | string, options: RequestOptions = {}): Promise<Uint8Array | undefined> {
    checkKey(key);
    checkGet(options);
    const bytes = bytesOf(key);
    return (await this.#onLine(options, (line, signal) => line.get(bytes, signal))).value;
  }

  /** Does it on a connection, and on the next one where that has ended before. */
  async #onLine<T>(
    options: RequestOptions,
    work: (line: Line, signal: AbortSignal) => Promise<T | undefined>,
  ): Promise<T> {
    const { timeout = this.#options.requestTimeout ?? 30_000, signal } = options;
    const given = signal ? AbortSignal.any([signal, this.#closed.signal]) : this.#closed.signal;
    given.throwIfAborted();
    const deadline = new Deadline(timeout, given, () => lateError(this.#target, timeout));
    try {
      const { backoff = BACKOFF, maxBackoff = MAX_BACKOFF } = this.#options;
      for (let pause = backoff; ; pause = Math.min(2 * pause, maxBackoff)) {
        const line = this.#free() ?? (await this.#connected(deadline.signal));
        line.load++;
        const answer = await work(line, deadline.signal).finally(() => line.load--);
        if (answer !== undefined) return answer;
        // A server that takes connections and ends them at once is not asked again at once.
        await sleep(drawn(pause), undefined, { signal: deadline.signal }).catch(() => {});
        deadline.signal.throwIfAborted();
      }
    } finally {
      deadline.end();
    }
  }

  /** The connection with the fewest requests. Where all are busy, another one is made for the next requests. */
  #free(): Line | undefined {
    const { connections = 1 } = this.#options;
    let best: Line | undefined;
    const open = [...this.#lines].filter(({ isOpen }) => isOpen);
    for (const line of open) if (!best || line.load < best.load) best = line;
    if (best && best.load > 0 && open.length < connections) this.#connectOnce().catch(() => {}); // The next request tries again.
    return best;
  }

  #connectOnce(): Promise<Line> {
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  /** The first connection, or the one after all have ended. */
  async #connected(signal: AbortSignal): Promise<Line> {
    return orAborted(this.#connectOnce(), signal);
  }

  /** Connects, until it has, or the client is closed. */
  async #connect(): Promise<Line> {
    const {
      connections: _c,
      requestTimeout: _r,
      backoff = BACKOFF,
      maxBackoff = MAX_BACKOFF,
      ...options
    } = this.#options;
    const { signal } = this.#closed;
    for (let pause = backoff; ; pause = Math.min(2 * pause, maxBackoff)) {
      try {
        const line = new Line(await connect(this.#target, { ...options, signal }), signal);
        this.#lines.add(line);
        void line.ended.finally(() => this.#lines.delete(line));
        return line;
      } catch (error) {
        const { code } = error as RoceError;
        if (code !== 'ERR_ROCE_CM_REFUSED' && code !== 'ERR_ROCE_CM_UNREACHABLE') throw error;
        await sleep(drawn(pause), undefined, { signal });
      }
    }
  }

  /** Closes all connections; requests that wait reject with ERR_ROCE_CLOSED. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#closed.abort(closedError(`the client of ${this.#target} is closed`));
    await this.#connecting?.catch(() => {});
    await Promise.all([...this.#lines].map(({ connection }) => connection.close()));
    await Promise.all([...this.#lines].map(({ ended }) => ended));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal */
  [inspect.custom](): string {
    return `Client { target: ${this.#target}, connections: ${this.connections}, pending: ${this.pending} }`;
  }
}

const lateError = (target: string, milliseconds: number): RoceError =>
  new RoceError('ERR_ROCE_TIMEOUT', `${target} has not answered within ${milliseconds} ms`, {
    errno: 'ETIMEDOUT',
    attribute: 'requestTimeout',
  });

/** Options of `answerRequests`. */
export interface AnswerOptions {
  /** Requests that the handler has at a time, and whose answers wait for the client to take them; the next ones stay with the client. Default 64. */
  concurrency?: number;
  /** The table that clients read with `get`. The peer can READ all of its memory, until the connection is closed. */
  table?: Table;
}

/**
 * Answers the requests of a `Client` on a connection, several at a time, until the connection ends. An error of the handler goes to the client
 * as its message.
 */
export async function answerRequests(
  connection: MessageConnection,
  handler: (body: Uint8Array) => Promise<Uint8Array | string> | Uint8Array | string,
  options: AnswerOptions = {},
): Promise<void> {
  checkAnswerOptions(options, Table);
  const { concurrency = 64, table } = options;
  const places = new Slots(concurrency);
  const text = new TextEncoder();
  const where = async () => {
    if (table === undefined) throw new Error('there is no table (answerRequests has an option for it)');
    return placeBytes(table, (await connection.publish(table.memory)).remote());
  };
  const answer = async (number: number, body: Uint8Array, isWhere: boolean) => {
    let reply: Uint8Array;
    try {
      const made = isWhere ? await where() : await handler(body);
      reply = message(Kind.ANSWER, number, typeof made === 'string' ? text.encode(made) : made);
      if (reply.length > connection.maxMessage)
        throw new Error(
          `an answer of ${reply.length - HEADER} bytes (${connection.maxMessage - HEADER} at most)`,
        );
    } catch (error) {
      const what = text.encode(`${(error as Error)?.message ?? error}`);
      reply = message(Kind.FAILURE, number, what.subarray(0, connection.maxMessage - HEADER));
    }
    await connection.send(reply).catch(() => {}); // The client has left.
  };
  // A handler may never end; what ends the wait for a place is the end of the connection.
  void connection.closed.then(() => places.close());
  for await (const bytes of connection) {
    if (bytes.length < HEADER) continue;
    const isWhere = bytes[0] === Kind.WHERE;
    if (bytes[0] !== Kind.REQUEST && !isWhere) continue;
    const place = await places.take();
    if (place === undefined) return;
    const number = new DataView(bytes.buffer, bytes.byteOffset).getUint32(1);
    void answer(number, bytes.subarray(HEADER), isWhere).finally(() => places.release(place));
  }
}
