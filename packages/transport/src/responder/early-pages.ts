/** Memory for packets that came early, shared by all connections of an adapter: pages, taken while a gap is open. */

/** Bytes of a page: some packets of the longest kind. */
export const PAGE_BYTES = 64 * 1024;

/** Promise: never more pages than the limit; a page is with one owner at a time. */
export class EarlyPages {
  readonly #limit: number;
  readonly #free: Uint8Array[] = [];
  #made = 0;

  /** @param limit pages that there may be, of all connections */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** A page, with whatever it held before; undefined if all are taken. */
  take(): Uint8Array | undefined {
    const page = this.#free.pop();
    if (page !== undefined || this.#made === this.#limit) return page;
    this.#made++;
    return new Uint8Array(PAGE_BYTES);
  }

  give(page: Uint8Array): void {
    this.#free.push(page);
  }

  /** Pages that connections have. */
  get taken(): number {
    return this.#made - this.#free.length;
  }
}
