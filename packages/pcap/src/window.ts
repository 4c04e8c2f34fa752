const EMPTY = new Uint8Array(0);
/** Memory that may be reserved on the word of a length field alone. */
const TRUSTED_BYTES = 65_536;

/**
 * Turns pushed chunks into runs of contiguous bytes.
 *
 * `require(n)` makes the next n bytes contiguous at `bytes[start]`; advancing `start` consumes them.
 * While an item lies within one chunk, `bytes` is that chunk and nothing is copied. An item that
 * straddles chunks is gathered in a seam: memory of our own that is only ever appended to, so views
 * of it stay good. The seam grows with the bytes that have arrived, never with the bytes promised.
 */
export class ByteWindow {
  bytes: Uint8Array = EMPTY;
  view: DataView = new DataView(EMPTY.buffer);
  /** Next byte to consume, and the end of the contiguous ones, as indices of `bytes`. */
  start = 0;
  end = 0;
  /** The bytes that the last failed `require` asked for. */
  wanted = 0;
  /** Offset in the input of `bytes[0]`. */
  #base = 0;
  /** `bytes` is a seam, with room up to `bytes.length`. */
  #isSeam = false;
  /** Chunks not yet part of `bytes`; of the first, the bytes from `#taken` on. */
  #chunks: Uint8Array[] = [];
  #taken = 0;

  /** Offset in the input of `bytes[start]`. */
  get offset(): number {
    return this.#base + this.start;
  }

  /** Adds input. The chunk is not copied here; see `require`. */
  push(chunk: Uint8Array): void {
    if (chunk.byteLength === 0) return;
    // A plain Uint8Array even when given a Buffer, so that `slice` copies for everyone.
    this.#chunks.push(new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength));
  }

  /**
   * True when the next n bytes are contiguous at `bytes[start]`. False when they have not arrived:
   * what has arrived is then held in the seam, and no chunk is referred to any more.
   */
  require(n: number): boolean {
    while (this.end - this.start < n) {
      if (!this.#extend(n)) {
        this.wanted = n;
        return false;
      }
    }
    return true;
  }

  /** Makes more of the input contiguous, towards n bytes; false when there is no more. */
  #extend(n: number): boolean {
    const have = this.end - this.start;
    const chunk = this.#chunks[0];
    if (chunk === undefined) {
      if (have === 0) this.#adopt(EMPTY, false);
      else if (!this.#isSeam) this.#growSeam(n, have);
      return false;
    }
    if (have === 0) {
      this.#adopt(this.#taken === 0 ? chunk : chunk.subarray(this.#taken), false);
      this.end = this.bytes.length;
      this.#chunks.shift();
      this.#taken = 0;
      return true;
    }
    const take = Math.min(n - have, chunk.length - this.#taken);
    if (!this.#isSeam || this.end + take > this.bytes.length) this.#growSeam(n, have + take);
    this.bytes.set(chunk.subarray(this.#taken, this.#taken + take), this.end);
    this.end += take;
    this.#taken += take;
    if (this.#taken === chunk.length) {
      this.#chunks.shift();
      this.#taken = 0;
    }
    return true;
  }

  /** Moves the unconsumed bytes to a new seam with room for `least` bytes, towards `n`. */
  #growSeam(n: number, least: number): void {
    const rest = this.bytes.subarray(this.start, this.end);
    this.#adopt(new Uint8Array(Math.max(least, 2 * rest.length, Math.min(n, TRUSTED_BYTES))), true);
    this.bytes.set(rest);
    this.end = rest.length;
  }

  #adopt(bytes: Uint8Array, isSeam: boolean): void {
    this.#base += this.start;
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.start = 0;
    this.end = 0;
    this.#isSeam = isSeam;
  }
}
