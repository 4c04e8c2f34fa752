/** Where the frames of a Zstandard stream begin and end, and what their headers state (RFC 8878 §3.1). */

/** The bytes that a frame begins with. */
export const ZSTD_MAGIC = [0x28, 0xb5, 0x2f, 0xfd];
const MAGIC = 0xfd2fb528;
/** Of frames to skip: the last four bits are free. */
const SKIPPABLE = 0x184d2a50;
const RLE_BLOCK = 1;
/** Bytes of a header's parts, by its flags. */
const DICTIONARY_BYTES = [0, 1, 2, 4];
const SIZE_BYTES = [0, 2, 4, 8];

const Part = {
  MAGIC: 0,
  DESCRIPTOR: 1,
  HEADER: 2,
  BLOCK_HEADER: 3,
  BLOCK: 4,
  CHECKSUM: 5,
  SKIP_SIZE: 6,
  SKIPPED: 7,
} as const;
type Part = (typeof Part)[keyof typeof Part];

/** Follows a stream part by part, whatever its chunks are. */
export class ZstdFrames {
  /** The frame holds nothing to inflate. */
  isSkippable = false;
  hasChecksum = false;
  /** The frame's content checksum, once it is at its end. */
  checksum = 0;
  /** The stream is between two frames. */
  isBetween = true;
  /** A frame has just begun: its magic number is at its end. */
  isBegin = false;
  #part: Part = Part.MAGIC;
  /** Bytes of this part that are to come. */
  #left = 4;
  #isLast = false;
  /** The last four bytes of the part. */
  #word = 0;

  /** Whether the bytes so far decide what frame it is. */
  get isKnown(): boolean {
    return this.#part !== Part.MAGIC || this.isBetween;
  }

  /**
   * Follows the stream up to the end of a magic number, or of a frame.
   * @returns where that is in these bytes, or their end
   * @throws Error if no frame begins where one should
   */
  next(bytes: Uint8Array, from: number): number {
    let at = from;
    this.isBegin = false;
    while (at < bytes.length) {
      this.isBetween = false;
      const end = Math.min(at + this.#left, bytes.length);
      this.#left -= end - at;
      for (at = Math.max(at, end - 4); at < end; at++) this.#word = (this.#word >>> 8) | (bytes[at] << 24);
      if (this.#left > 0) return at;
      this.#done();
      if (this.isBetween || this.isBegin) return at;
    }
    return at;
  }

  /** The part is at its end. */
  #done(): void {
    const word = this.#word >>> 0;
    switch (this.#part) {
      case Part.MAGIC:
        this.isSkippable = (word & 0xffff_fff0) >>> 0 === SKIPPABLE;
        this.hasChecksum = false;
        this.isBegin = true;
        if (!this.isSkippable && word !== MAGIC) throw new Error('no frame begins here');
        this.#enter(this.isSkippable ? Part.SKIP_SIZE : Part.DESCRIPTOR, this.isSkippable ? 4 : 1);
        break;
      case Part.DESCRIPTOR: {
        const flags = word >>> 24;
        const isSingle = (flags & 0x20) !== 0;
        this.hasChecksum = (flags & 4) !== 0;
        const size = SIZE_BYTES[flags >> 6] || Number(isSingle);
        this.#enter(Part.HEADER, Number(!isSingle) + DICTIONARY_BYTES[flags & 3] + size);
        break;
      }
      case Part.BLOCK_HEADER: {
        const header = word >>> 8;
        this.#isLast = (header & 1) !== 0;
        this.#enter(Part.BLOCK, ((header >> 1) & 3) === RLE_BLOCK ? 1 : header >> 3);
        break;
      }
      case Part.HEADER:
        this.#enter(Part.BLOCK_HEADER, 3);
        break;
      case Part.BLOCK:
        if (!this.#isLast) this.#enter(Part.BLOCK_HEADER, 3);
        else if (this.hasChecksum) this.#enter(Part.CHECKSUM, 4);
        else this.#end();
        break;
      case Part.CHECKSUM:
        this.checksum = word;
        this.#end();
        break;
      case Part.SKIP_SIZE:
        this.#enter(Part.SKIPPED, word);
        break;
      default:
        this.#end();
    }
  }

  #enter(part: Part, bytes: number): void {
    this.#part = part;
    this.#left = bytes;
    if (bytes === 0) this.#done();
  }

  #end(): void {
    this.#part = Part.MAGIC;
    this.#left = 4;
    this.isBetween = true;
  }
}
