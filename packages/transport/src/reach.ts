/**
 * Memory that the engine has no mapping of, such as a program's own in another process: its bytes are fetched and stored by calls that
 * may fail. The region's view has the right length, and holds what was fetched last.
 */
export interface Reach {
  /** Fetches bytes into the view. False where they can't be read any more. */
  pull(offset: number, length: number): boolean;
  /** Stores bytes at once, the last ones last. False where they can't be written any more. */
  push(from: Uint8Array, source: number, offset: number, length: number): boolean;
  /** The bytes of the view are not read again: their memory may go. */
  forget(): void;
}

/** The open batches, which are made of fetched bytes. */
interface Open {
  atClose(release: () => void): void;
}

/** By the buffer of the view. */
const REACHES = new WeakMap<ArrayBufferLike, Reach>();

/** Regions over this buffer, registered from now on, are behind `reach`. The engine has to be in this thread. */
export function setReach(buffer: SharedArrayBuffer, reach: Reach): void {
  REACHES.set(buffer, reach);
}

export function reachOf(buffer: ArrayBufferLike): Reach | undefined {
  return REACHES.get(buffer);
}

/** Fetched bytes that are kept until no batch is open. */
const KEPT_BYTES = 16 * 1024 * 1024;

/** Owns which views have bytes that were fetched, and how many. */
export class Fetched {
  readonly #open: Open;
  #bytes = 0;
  /** They go when the last open batch is closed. */
  #isFull = false;
  readonly #views = new Set<Reach>();

  constructor(open: Open) {
    this.#open = open;
  }

  /** Fetches bytes that a packet is made of: they stay until the batch was sent. */
  pull(reach: Reach, offset: number, length: number): boolean {
    this.#bytes += length;
    this.#views.add(reach);
    if (this.#bytes >= KEPT_BYTES && !this.#isFull) {
      this.#isFull = true;
      // The batch that these bytes go into may not be open yet.
      this.#open.atClose(() => this.#forget());
    }
    return reach.pull(offset, length);
  }

  /** No packet of any batch is still to be read. */
  #forget(): void {
    this.#isFull = false;
    for (const reach of this.#views) reach.forget();
    this.#views.clear();
    this.#bytes = 0;
  }

  /** The view is not used any more. */
  drop(reach: Reach): void {
    this.#views.delete(reach);
  }
}
