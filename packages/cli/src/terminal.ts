/** Where a command reads and writes: data on stdout, messages on stderr, progress only on a terminal. */
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createColors } from 'picocolors';
import { wrap } from './wrap.ts';

/** An output: `process.stdout` is one, a collector in a test another. */
export interface Sink {
  /** Calls back when there is room for more. */
  write(text: string | Uint8Array, done?: (error?: Error | null) => void): unknown;
  isTTY?: boolean;
  columns?: number;
  rows?: number;
}

/** The parts of the process that a command uses. */
export interface Streams {
  stdin: Readable;
  stdout: Sink;
  stderr: Sink;
  env: Readonly<Record<string, string | undefined>>;
  /** Aborted by Ctrl-C: end in order. */
  signal: AbortSignal;
  /** Calls `end` when the reader of stdout has gone, instead of ending the process at once. */
  whenUnread?: ((end: () => void) => void) | undefined;
}

type Colors = ReturnType<typeof createColors>;

/** https://no-color.org, https://force-color.org, and the dumb terminal of clig.dev. */
function wantsColor(sink: Sink, env: Streams['env']): boolean {
  if (env.NO_COLOR) return false;
  if (env.FORCE_COLOR) return env.FORCE_COLOR !== '0';
  return sink.isTTY === true && env.TERM !== 'dumb';
}

/** Joins short texts into pieces that are worth a write. */
function* batched(parts: Iterable<string>): Generator<Buffer> {
  let text = '';
  for (const part of parts) {
    text += part;
    if (text.length < 65_536) continue;
    yield Buffer.from(text);
    text = '';
  }
  yield Buffer.from(text);
}

/** The outputs of a command, with buffering, colours, progress and JSON. */
export class Terminal {
  readonly stdin: Readable;
  readonly env: Streams['env'];
  readonly signal: AbortSignal;
  /** For output to stdout. */
  readonly colors: Colors;
  /** For output to stderr. */
  readonly errColors: Colors;
  readonly #whenUnread: Streams['whenUnread'];
  readonly #stdout: Sink;
  readonly #stderr: Sink;
  #pending: string[] = [];
  #pendingLength = 0;
  #progressShown = false;
  /** Lines of the last `redraw`, which the next one replaces. */
  #drawn = 0;

  constructor(streams: Streams) {
    this.stdin = streams.stdin;
    this.env = streams.env;
    this.signal = streams.signal;
    this.#whenUnread = streams.whenUnread;
    this.#stdout = streams.stdout;
    this.#stderr = streams.stderr;
    this.colors = createColors(wantsColor(streams.stdout, streams.env));
    this.errColors = createColors(wantsColor(streams.stderr, streams.env));
  }

  /**
   * Calls `end` when the reader of stdout has gone (`| head`), for a command that then has a file to close. The process of
   * others ends at once.
   */
  whenUnread(end: () => void): void {
    this.#whenUnread?.(end);
  }

  /** Whether stdout is a terminal. */
  get isTTY(): boolean {
    return this.#stdout.isTTY === true;
  }

  /** Size of the terminal that shows stdout; 24 × 80 without one. */
  get rows(): number {
    return this.#stdout.rows ?? 24;
  }

  get columns(): number {
    return this.#stdout.columns ?? 80;
  }

  /** Width that text has to fit: of the terminal; without one, there is no limit. */
  get paragraphWidth(): number {
    return this.isTTY ? this.columns : Number.POSITIVE_INFINITY;
  }

  /** Writes a line of data; on a terminal it is wrapped at words, indented as wide as `prefix`. */
  paragraph(prefix: string, text: string): void {
    this.line(wrap(prefix, text, this.paragraphWidth));
  }

  /** Writes one line of data. Lines are buffered: a write per line would be a system call per line. */
  line(text = ''): void {
    this.#pending.push(text);
    this.#pendingLength += text.length + 1;
    if (this.#pendingLength > 32_768 || this.#stdout.isTTY) this.flush();
  }

  /** Writes one line of JSON; `bigint` becomes a decimal string. */
  json(value: unknown): void {
    this.line(JSON.stringify(value, (_key, v) => (typeof v === 'bigint' ? v.toString() : v)));
  }

  /** Writes the parts of a text as the reader takes them, so that the whole is never in memory. */
  async jsonParts(parts: Iterable<string>): Promise<void> {
    await pipeline(Readable.from(batched(parts)), this.binary());
  }

  /**
   * Writes lines of data over those of the last call, if nothing else was written since; if stdout is not a
   * terminal, below them.
   */
  redraw(lines: readonly string[]): void {
    const above = this.isTTY && this.#drawn > 0 ? `\u001b[${this.#drawn}A\u001b[J` : '';
    this.flush();
    this.#stdout.write(`${above}${lines.join('\n')}\n`);
    this.#drawn = lines.length;
  }

  /** Stdout for bytes instead of lines. Ending it leaves stdout open. */
  binary(): Writable {
    this.flush();
    return new Writable({
      write: (chunk: Uint8Array, _encoding, done) => void this.#stdout.write(chunk, done),
    });
  }

  /** Writes buffered lines to stdout; called at the end of every command and before a long wait. */
  flush(): void {
    this.#clearProgress();
    if (this.#pending.length === 0) return;
    const text = `${this.#pending.join('\n')}\n`;
    this.#pending = [];
    this.#pendingLength = 0;
    this.#drawn = 0;
    this.#stdout.write(text);
  }

  /** Writes a message to stderr, in order with the data. */
  message(text: string): void {
    this.flush();
    this.#drawn = 0;
    this.#stderr.write(`${text}\n`);
  }

  /** Shows progress on stderr, over the last such line; nothing if stderr is not a terminal. */
  progress(text: string): void {
    if (!this.#stderr.isTTY) return;
    this.#stderr.write(`\r\u001b[K${text.slice(0, (this.#stderr.columns ?? 80) - 1)}`);
    this.#progressShown = true;
  }

  #clearProgress(): void {
    if (!this.#progressShown) return;
    this.#progressShown = false;
    this.#stderr.write('\r\u001b[K');
  }
}
