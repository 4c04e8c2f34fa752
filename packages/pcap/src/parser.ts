import { CaptureError, CaptureErrorCode } from './errors.ts';
import type { FormatReader } from './format-reader.ts';
import { PcapMagic } from './pcap-format.ts';
import { PcapReader } from './pcap-reader.ts';
import { BlockType } from './pcapng-format.ts';
import { PcapngReader } from './pcapng-reader.ts';
import type { CaptureFormat, PacketRecord, SectionInfo } from './record.ts';
import { ByteWindow } from './window.ts';

export interface CaptureParserOptions {
  /**
   * Most bytes that a packet (pcap) or block (pcapng) may claim, 12 or more. Default 64 MiB. The claim
   * alone reserves no memory: the parser holds at most the bytes of one unfinished item.
   */
  readonly maxBlockLength?: number;
}

export const DEFAULT_MAX_BLOCK_LENGTH = 64 * 1024 * 1024;

/** First bytes of a gzip stream (RFC 1952 §2.3.1), as a big-endian word with a free low half. */
const GZIP_MAGIC = 0x1f8b;

/** First bytes of formats that other programs read, and what the message recommends. */
const ELSEWHERE: readonly (readonly [magic: number, mask: number, code: CaptureErrorCode, advice: string])[] =
  [
    [
      0x28b52ffd,
      0xffffffff,
      CaptureErrorCode.COMPRESSED,
      'zstd: inflate it first (openCapture of node-roce/pcap/node does)',
    ],
    [0x04224d18, 0xffffffff, CaptureErrorCode.COMPRESSED, 'compressed by lz4: decompress it with lz4 -dc'],
    [0xfd377a58, 0xffffffff, CaptureErrorCode.COMPRESSED, 'compressed by xz: decompress it with xz -dc'],
    [
      0x425a6800,
      0xffffff00,
      CaptureErrorCode.COMPRESSED,
      'compressed by bzip2: decompress it with bzip2 -dc',
    ],
    [0x736e6f6f, 0xffffffff, CaptureErrorCode.UNKNOWN_FORMAT, 'a snoop capture: convert it with editcap'],
    [
      0x474d4255,
      0xffffffff,
      CaptureErrorCode.UNKNOWN_FORMAT,
      'a capture of Microsoft Network Monitor: convert it with editcap',
    ],
    [
      0x52545353,
      0xffffffff,
      CaptureErrorCode.UNKNOWN_FORMAT,
      'a capture of Microsoft Network Monitor 1: convert it with editcap',
    ],
  ];

/**
 * Reads pcap and pcapng from chunks of any size, without I/O.
 *
 * `push` input, `read` until it gives undefined, repeat; at the end of the input call `end`, read what
 * is left, and look at `error`. Input never makes it throw: damage ends the records and sets `error`.
 *
 * ```ts
 * const parser = new CaptureParser();
 * for (const chunk of chunks) {
 *   parser.push(chunk);
 *   for (const record of parser) use(record);
 * }
 * parser.end();
 * if (parser.error) console.error(parser.error.message);
 * ```
 *
 * A record's bytes are views of the pushed chunk: see `PacketRecord`.
 */
export class CaptureParser implements Iterable<PacketRecord> {
  readonly #window = new ByteWindow();
  readonly #maxBlockLength: number;
  #reader: FormatReader | undefined;
  #error: CaptureError | undefined;
  #ended = false;
  /** No read can give a packet: none has come since the last one that wanted more input. */
  #starved = true;
  #packetCount = 0;

  /** @throws RangeError for a `maxBlockLength` that is no integer or below 12 */
  constructor(options: CaptureParserOptions = {}) {
    const { maxBlockLength = DEFAULT_MAX_BLOCK_LENGTH } = options;
    if (!Number.isSafeInteger(maxBlockLength) || maxBlockLength < 12) {
      throw new RangeError(`maxBlockLength must be an integer of 12 or more, got ${maxBlockLength}`);
    }
    this.#maxBlockLength = maxBlockLength;
  }

  /** Why the records stopped before the input did; undefined while all is well. */
  get error(): CaptureError | undefined {
    return this.#error;
  }

  /** Undefined until the magic number has been read. */
  get format(): CaptureFormat | undefined {
    return this.section?.format;
  }

  /** The section being read, with its interfaces; undefined until a file or section header was read. */
  get section(): SectionInfo | undefined {
    return this.#reader?.section;
  }

  /** Bytes consumed so far: the offset of the item that comes next. */
  get offset(): number {
    return this.#window.offset;
  }

  /** Packets read so far. */
  get packetCount(): number {
    return this.#packetCount;
  }

  /**
   * Adds input. Chunks that are not yet read through are referred to, not copied; once `read` has
   * given undefined the parser refers to none.
   *
   * @throws Error after `end`
   */
  push(chunk: Uint8Array): void {
    if (this.#ended) throw new Error('push after end: make a new CaptureParser for each capture');
    if (this.#error !== undefined) return;
    this.#window.push(chunk);
    this.#starved = false;
  }

  /** Ends the input. An item that is then incomplete becomes `error`. */
  end(): void {
    this.#ended = true;
    if (this.#starved) this.#finish();
  }

  /** The next packet; undefined when more input is needed, at the end, and after an error. */
  read(): PacketRecord | undefined {
    if (this.#error !== undefined) return undefined;
    if (this.#reader === undefined && !this.#recognise()) return this.#starve();
    const result = this.#reader!.read();
    if (result === undefined) return this.#starve();
    if (result instanceof CaptureError) {
      this.#error = result;
      return undefined;
    }
    this.#packetCount++;
    return result;
  }

  /** The packets of the input pushed so far; iterate again after the next `push`. */
  [Symbol.iterator](): Iterator<PacketRecord, undefined> {
    return {
      next: () => {
        const value = this.read();
        return value === undefined ? { done: true, value } : { done: false, value };
      },
    };
  }

  #starve(): undefined {
    this.#starved = true;
    if (this.#ended) this.#finish();
    return undefined;
  }

  /** Judges the bytes that no item could be made of. */
  #finish(): void {
    const window = this.#window;
    const have = window.end - window.start;
    if (this.#error !== undefined || (have === 0 && this.section !== undefined)) return;
    const what = this.#reader?.reading ?? 'file header';
    this.#error = new CaptureError(
      CaptureErrorCode.TRUNCATED,
      window.offset,
      have === 0
        ? 'the input is empty: no file header'
        : `the input is cut off at byte ${window.offset + have}: the ${what} at byte ${window.offset} needs ${window.wanted} bytes, ${have} are there`,
    );
  }

  /** Chooses the reader by the magic number; false when it has not arrived or is not known. */
  #recognise(): boolean {
    const window = this.#window;
    if (!window.require(4)) return false;
    const magic = window.view.getUint32(window.start, false);
    const swapped = window.view.getUint32(window.start, true);
    if (magic === BlockType.SECTION_HEADER) {
      this.#reader = new PcapngReader(window, this.#maxBlockLength);
    } else if (magic === PcapMagic.MICROSECONDS || swapped === PcapMagic.MICROSECONDS) {
      this.#reader = new PcapReader(window, swapped === PcapMagic.MICROSECONDS, 1e6, this.#maxBlockLength);
    } else if (magic === PcapMagic.NANOSECONDS || swapped === PcapMagic.NANOSECONDS) {
      this.#reader = new PcapReader(window, swapped === PcapMagic.NANOSECONDS, 1e9, this.#maxBlockLength);
    } else if (magic === PcapMagic.MODIFIED || swapped === PcapMagic.MODIFIED) {
      this.#error = new CaptureError(
        CaptureErrorCode.MODIFIED,
        0,
        'a "modified" pcap file (magic 0xa1b2cd34) is not read: its packet headers carry extra fields; convert it with editcap',
      );
    } else if (magic >>> 16 === GZIP_MAGIC) {
      this.#error = new CaptureError(
        CaptureErrorCode.COMPRESSED,
        0,
        'the input is gzip: inflate it first (openCapture of node-roce/pcap/node does)',
      );
    } else {
      this.#error = elsewhere(magic) ?? unknown(magic);
    }
    return this.#reader !== undefined;
  }
}

function elsewhere(magic: number): CaptureError | undefined {
  const found = ELSEWHERE.find(([first, mask]) => (magic & mask) >>> 0 === first);
  return found && new CaptureError(found[2], 0, `the input is ${found[3]}`);
}

function unknown(magic: number): CaptureError {
  const hex = magic.toString(16).padStart(8, '0');
  return new CaptureError(
    CaptureErrorCode.UNKNOWN_FORMAT,
    0,
    `the input starts with 0x${hex}, the magic number of neither pcap nor pcapng; editcap -F pcapng converts most other formats`,
  );
}
