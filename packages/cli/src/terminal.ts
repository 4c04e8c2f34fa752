/** Where a command reads and writes: data on stdout, messages on stderr, progress only for eyes. */
import type { Readable } from 'node:stream';
import { createColors } from 'picocolors';

/** An output: `process.stdout` is one, a collector in a test another. */
export interface Sink {
  write(text: string): unknown;
  isTTY?: boolean;
  columns?: number;
}

/** What a command is given of its process. */
export interface Streams {
  stdin: Readable;
  stdout: Sink;
  stderr: Sink;
  env: Readonly<Record<string, string | undefined>>;
  /** Aborted by Ctrl-C: end in order. */
  signal: AbortSignal;
}

type Colors = ReturnType<typeof createColors>;

/** https://no-color.org, https://force-color.org, and the dumb terminal of clig.dev. */
function wantsColor(sink: Sink, env: Streams['env']): boolean {
  if (env.NO_COLOR) return false;
  if (env.FORCE_COLOR) return env.FORCE_COLOR !== '0';
  return sink.isTTY === true && env.TERM !== 'dumb';
}

export class Terminal {
  readonly stdin: Readable;
  readonly env: Streams['env'];
  readonly signal: AbortSignal;
  /** For what goes to stdout. */
  readonly colors: Colors;
  /** For what goes to stderr. */
  readonly errColors: Colors;
  readonly #stdout: Sink;
  readonly #stderr: Sink;
  #pending: string[] = [];
  #pendingLength = 0;
  #progressShown = false;

  constructor(streams: Streams) {
    this.stdin = streams.stdin;
    this.env = streams.env;
    this.signal = streams.signal;
    this.#stdout = streams.stdout;
    this.#stderr = streams.stderr;
    this.colors = createColors(wantsColor(streams.stdout, streams.env));
    this.errColors = createColors(wantsColor(streams.stderr, streams.env));
  }

  /** Writes one line of data. Lines are gathered, as a write a line would be a system call a line. */
  line(text = ''): void {
    this.#pending.push(text);
    this.#pendingLength += text.length + 1;
    if (this.#pendingLength > 32_768 || this.#stdout.isTTY) this.flush();
  }

  /** Writes one line of JSON; `bigint` becomes a decimal string. */
  json(value: unknown): void {
    this.line(JSON.stringify(value, (_key, v) => (typeof v === 'bigint' ? v.toString() : v)));
  }

  /** Hands what was gathered to stdout; called at the end of every command and before a long wait. */
  flush(): void {
    this.#clearProgress();
    if (this.#pending.length === 0) return;
    const text = `${this.#pending.join('\n')}\n`;
    this.#pending = [];
    this.#pendingLength = 0;
    this.#stdout.write(text);
  }

  /** Writes a message for the person in front of the screen, in order with the data. */
  message(text: string): void {
    this.flush();
    this.#stderr.write(`${text}\n`);
  }

  /** Shows where a long work stands, over the last such line; nothing when stderr is not a terminal. */
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
