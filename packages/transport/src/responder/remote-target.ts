/** The memory that a request's key and address name. */
import type { Memory } from '../memory.ts';
import type { Owner } from '../qp/owner.ts';
import type { MemoryRegion } from '../region.ts';

/**
 * Owns the region and place that the last check found: made once for a responder, filled by each RETH or
 * AtomicETH. Without a region after a good check, the request is for no bytes.
 */
export class RemoteTarget {
  /** Protection domain that keys have to be of: the queue pair's; XRC: that of the SRQ that the request names. */
  #pd: number;
  #region: MemoryRegion | undefined;
  #offset = 0;

  constructor(pd: number) {
    this.#pd = pd;
  }

  get pd(): number {
    return this.#pd;
  }

  /** XRC: keys have to be of this protection domain from now on. */
  within(pd: number): void {
    this.#pd = pd;
  }

  get region(): MemoryRegion | undefined {
    return this.#region;
  }
  /** Bytes from the start of the backing buffer. */
  get offset(): number {
    return this.#offset;
  }

  /** A request for no bytes needs no key (§9.4.3, §9.4.4). */
  clear(): void {
    this.#region = undefined;
    this.#offset = 0;
  }

  /** Looks up `length` bytes from an address; false if key, protection domain, right or range forbid it. Key and words may be signed. */
  find(
    memory: Memory,
    owner: Owner,
    access: number,
    key: number,
    high: number,
    low: number,
    length: number,
  ): boolean {
    this.clear();
    const region = memory.byRkey(key);
    if (region?.pd !== this.#pd || (region.access & access) !== access) return false;
    if (region.qpn >= 0 && region.qpn !== owner.qpn) return false;
    const offset = region.locate(high, low, length);
    if (offset < 0) return false;
    this.#region = region;
    this.#offset = offset;
    return true;
  }
}

/** The target of answers without bytes. */
export const NO_TARGET = new RemoteTarget(-1);
