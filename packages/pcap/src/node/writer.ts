import { type FileHandle, open } from 'node:fs/promises';
import type { Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import type { CaptureEncoder, PacketInput } from '../encoder.ts';
import { PcapEncoder, type PcapOptions } from '../pcap-encoder.ts';
import { type InterfaceOptions, PcapngEncoder, type SectionOptions } from '../pcapng-encoder.ts';

/** Encoded bytes gathered before they go to the stream. */
const FLUSH_SIZE = 65_536;
/** Bytes on their way to a file before `write` returns false. */
const FILE_HIGH_WATER = 1_048_576;

interface FileOptions {
  /** As for `fs.open`: `w` (the default) replaces a file, `wx` refuses to. */
  readonly flags?: 'w' | 'wx';
}

/** A classic pcap file; see `PcapOptions`. */
export interface PcapFileOptions extends FileOptions, PcapOptions {
  readonly format: 'pcap';
}

/** A pcapng file: the options of its first section, and the interfaces, which get the ids 0, 1, … */
export interface PcapngFileOptions extends FileOptions, SectionOptions {
  readonly format?: 'pcapng';
  /** More can be added later with `writer.encoder.interface`. */
  readonly interfaces?: readonly InterfaceOptions[];
}

/**
 * Creates a capture file; pcapng unless `format` is `pcap`.
 *
 * ```ts
 * await using file = await createCaptureFile('trace.pcapng', {
 *   interfaces: [{ linkType: LinkType.ETHERNET, name: 'eth0' }],
 * });
 * for (const packet of packets) {
 *   if (!file.write(packet)) await file.drain();
 * }
 * ```
 *
 * @throws the system's error when the file cannot be created, RangeError for options that do not fit
 */
export async function createCaptureFile(
  path: string | URL,
  options: PcapFileOptions,
): Promise<CaptureWriter<PcapEncoder>>;
export async function createCaptureFile(
  path: string | URL,
  options: PcapngFileOptions,
): Promise<CaptureWriter<PcapngEncoder>>;
export async function createCaptureFile(
  path: string | URL,
  options: PcapFileOptions | PcapngFileOptions,
): Promise<CaptureWriter<PcapEncoder | PcapngEncoder>> {
  const encoder = options.format === 'pcap' ? new PcapEncoder(options) : pcapngEncoder(options);
  const file: FileHandle = await open(path, options.flags ?? 'w');
  return new CaptureWriter(file.createWriteStream({ highWaterMark: FILE_HIGH_WATER }), encoder);
}

function pcapngEncoder(options: PcapngFileOptions): PcapngEncoder {
  const encoder = new PcapngEncoder(options);
  for (const described of options.interfaces ?? []) encoder.interface(described);
  return encoder;
}

/**
 * Writes packets to a stream through an encoder.
 *
 * Packets are gathered and go to the stream when 64 KiB are full, else once a turn of the event loop,
 * so a quiet capture is on its way at once and a busy one in large pieces.
 */
export class CaptureWriter<E extends CaptureEncoder = CaptureEncoder> implements AsyncDisposable {
  /**
   * Encodes everything but packets: sections, interfaces, statistics. Encoded blocks are written with the next
   * `write`, `flush` or `close`; its `take` is not for the caller.
   */
  readonly encoder: E;
  readonly #stream: Writable;
  #failure: Error | undefined;
  #closing: Promise<void> | undefined;
  #flushDue: NodeJS.Immediate | undefined;

  constructor(stream: Writable, encoder: E) {
    this.#stream = stream;
    this.encoder = encoder;
    stream.on('error', (error) => {
      this.#failure ??= error;
    });
    // A stream destroyed without an error would take what is written and silently lose it.
    stream.on('close', () => {
      if (!stream.writableFinished) this.#failure ??= new Error('the stream was closed by others');
    });
  }

  /**
   * Takes a packet; its bytes are copied before this returns.
   *
   * @returns false when the stream has fallen behind: await `drain` before writing on, or memory grows
   * @throws the stream's error, after it has failed; RangeError as the encoder; Error after `close`
   */
  write(packet: PacketInput): boolean {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#closing !== undefined) throw new Error('write after close');
    this.encoder.packet(packet);
    if (this.encoder.pending >= FLUSH_SIZE) this.#send();
    else this.#flushDue ??= setImmediate(() => this.#send());
    return !this.#stream.writableNeedDrain;
  }

  /** Resolves when the stream takes more; rejects with its error. */
  async drain(): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    const stream = this.#stream;
    if (!stream.writableNeedDrain) return;
    await new Promise<void>((resolve, reject) => {
      const settle = (): void => {
        stream.off('drain', settle).off('close', settle).off('error', settle);
        if (this.#failure !== undefined) reject(this.#failure);
        else resolve();
      };
      stream.on('drain', settle).on('close', settle).on('error', settle);
    });
  }

  /** Writes all packets, waiting whenever the stream falls behind. */
  async writeAll(packets: Iterable<PacketInput> | AsyncIterable<PacketInput>): Promise<void> {
    for await (const packet of packets) {
      if (!this.write(packet)) await this.drain();
    }
  }

  /** Resolves when all that was written has been handed to the operating system. */
  async flush(): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    await new Promise<void>((resolve, reject) => {
      this.#send((error) => (error ? reject(error) : resolve()));
    });
  }

  /** Flushes and ends the stream; safe to call again. Rejects with the stream's error. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    if (this.#failure === undefined) this.#send();
    clearImmediate(this.#flushDue);
    this.#stream.end();
    await finished(this.#stream, { readable: false });
    if (this.#failure !== undefined) throw this.#failure;
  }

  #send(done?: (error: Error | null | undefined) => void): void {
    clearImmediate(this.#flushDue);
    this.#flushDue = undefined;
    // The stream keeps the chunk until it is written; the encoder's buffer is used again before that.
    this.#stream.write(this.encoder.take().slice(), done);
  }
}
