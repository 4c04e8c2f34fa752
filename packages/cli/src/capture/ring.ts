/** A ring of files: `roce capture --ring 10x100M` writes one after the other, and removes the oldest. */
import { rm } from 'node:fs/promises';
import { extname } from 'node:path';
import type { Terminal } from '../terminal.ts';
import type { InterfaceSource } from './interface-source.ts';
import { type Batch, Recorder } from './recorder.ts';

export interface RingSize {
  /** Files that stay, without those that were kept. */
  files: number;
  /** Bytes of a file; it ends with the packet that reaches them. */
  bytes: number;
}

/** Bytes that pcapng adds to a packet, and to a file. */
const BLOCK_BYTES = 32;
const DIGITS = 5;

interface Written {
  path: string;
  kept: boolean;
}

/** `trace.pcapng`: trace-00001.pcapng, trace-00002.pcapng … */
export function ringPath(path: string, number: number): string {
  const end = extname(path);
  return `${path.slice(0, path.length - end.length)}-${String(number).padStart(DIGITS, '0')}${end}`;
}

/** Opens the file with a number. */
type OpenFile = (path: string) => Promise<Pick<Recorder, 'write' | 'close'>>;

/** Writes packets into the files of a ring. */
export class RingRecorder implements AsyncDisposable {
  readonly name: string;
  readonly #path: string;
  readonly #size: RingSize;
  readonly #open: OpenFile;
  /** Finished files that are still there, the oldest first. */
  #written: Written[] = [];
  #file: Pick<Recorder, 'write' | 'close'>;
  #current: Written;
  #number = 1;
  #bytes = 0;
  #keepsNext = false;

  static async open(
    path: string,
    size: RingSize,
    source: InterfaceSource,
    terminal: Terminal,
  ): Promise<RingRecorder> {
    return await RingRecorder.start(path, size, (file) => Recorder.open(file, source, terminal));
  }

  /** @param open makes a file; by `Recorder` unless a test does */
  static async start(path: string, size: RingSize, open: OpenFile): Promise<RingRecorder> {
    const first = ringPath(path, 1);
    return new RingRecorder(path, size, open, first, await open(first));
  }

  private constructor(
    path: string,
    size: RingSize,
    open: OpenFile,
    first: string,
    file: Pick<Recorder, 'write' | 'close'>,
  ) {
    this.name = `${ringPath(path, 1)} … (${size.files} files)`;
    this.#path = path;
    this.#size = size;
    this.#open = open;
    this.#current = { path: first, kept: false };
    this.#file = file;
  }

  /** Resolves when the file takes more. A file ends between two packets. */
  async write(batch: Batch): Promise<void> {
    let from = 0;
    for (const [i, { data }] of batch.entries()) {
      this.#bytes += data.length + BLOCK_BYTES;
      if (this.#bytes < this.#size.bytes) continue;
      await this.#file.write(batch.slice(from, i + 1));
      from = i + 1;
      await this.#turn();
    }
    if (from < batch.length) await this.#file.write(batch.slice(from));
  }

  /** Keeps the file at hand for good, with the one before it and the one after it. */
  keep(): void {
    this.#current.kept = true;
    const before = this.#written.at(-1);
    if (before !== undefined) before.kept = true;
    this.#keepsNext = true;
  }

  async close(): Promise<void> {
    await this.#file.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #turn(): Promise<void> {
    await this.#file.close();
    this.#written.push(this.#current);
    this.#number++;
    this.#bytes = 0;
    const path = ringPath(this.#path, this.#number);
    this.#current = { path, kept: this.#keepsNext };
    this.#keepsNext = false;
    this.#file = await this.#open(path);
    await this.#removeOldest();
  }

  /** The file at hand is one of the ring; files that were kept do not count. The last one stays in the list: it may be kept yet. */
  async #removeOldest(): Promise<void> {
    const free = this.#written.filter(({ kept }) => !kept);
    const gone = new Set(free.slice(0, Math.max(0, free.length + 1 - this.#size.files)));
    for (const { path } of gone) await rm(path, { force: true });
    const last = this.#written.at(-1);
    this.#written = this.#written.filter((file) => !gone.has(file) && (!file.kept || file === last));
  }
}
