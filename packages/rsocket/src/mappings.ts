/** Memory that the sides of a connection offer each other, as riomap(3) does: its bytes are written by offset, without the stream. */
import { inspect } from 'node:util';
import { invalid } from '@node-roce/rdmacm/parts';
import { type MemoryRegion, type ProtectionDomain, RoceError } from '@node-roce/verbs-api';
import { decodeMapping, MAPPING_BYTES, type MappingEntry } from './wire.ts';

/** Memory that the peer may write to, from an offset on. Made by `socket.iomap`. */
export class IoMapping implements AsyncDisposable {
  /** The memory, as the peer's bytes change it. */
  readonly bytes: Uint8Array;
  /** The offset that its first byte has for the peer. */
  readonly offset: bigint;
  readonly #end: () => Promise<void>;

  /** @internal */
  constructor(bytes: Uint8Array, offset: bigint, end: () => Promise<void>) {
    this.bytes = bytes;
    this.offset = offset;
    this.#end = end;
  }

  /** As riounmap(3): the peer, which is not notified, may write there no more. If it does, the connection fails. */
  unmap(): Promise<void> {
    return this.#end();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.unmap();
  }

  /** @internal */
  [inspect.custom](): string {
    return `IoMapping { offset: ${this.offset}n, bytes: ${this.bytes.length} }`;
  }
}

/** A place of the peer's list, and what stands there. */
interface Slot {
  offset: bigint;
  length: number;
  mr: MemoryRegion | undefined;
}

const overlap = (a: Slot, offset: bigint, length: number) =>
  offset < a.offset + BigInt(a.length) && a.offset < offset + BigInt(length);

/** Both directions of a connection: the memory that we offer, and the entries that the peer has written. */
export class Mappings {
  readonly #pd: ProtectionDomain;
  readonly #entries: DataView;
  readonly #slots: (Slot | undefined)[] = [];
  readonly #registering = new Set<Promise<unknown>>();

  /** @param entries the peer's, little-endian */
  constructor(pd: ProtectionDomain, entries: Uint8Array) {
    this.#pd = pd;
    this.#entries = new DataView(entries.buffer, entries.byteOffset, entries.byteLength);
  }

  /**
   * Offers memory at the first free place of the peer's list.
   *
   * @param places of that list
   * @param announce writes the entry there; where that rejects, nothing is left
   */
  async offer(
    bytes: Uint8Array,
    offset: bigint,
    places: number,
    announce: (place: number, entry: MappingEntry) => Promise<unknown>,
  ): Promise<IoMapping> {
    const { length } = bytes;
    const other = this.#slots.find((slot) => slot && overlap(slot, offset, length));
    if (other) throw invalid('offset', `${offset}`, `no overlap with the memory at ${other.offset}`);
    let place = 0;
    while (this.#slots[place]) place++;
    if (place >= places)
      throw new RoceError('ERR_ROCE_LIMIT', `the peer lets its peer map ${places} buffers at a time`, {
        errno: 'ENOMEM',
        attribute: 'ioMappings',
        expected: 'a larger `ioMappings` there (RDMA_IOMAPSIZE in C)',
      });
    const slot: Slot = { offset, length, mr: undefined };
    this.#slots[place] = slot;
    const end = async () => {
      if (this.#slots[place] === slot) this.#slots[place] = undefined;
      await slot.mr?.deregister().catch(() => {});
    };
    try {
      const { addr, rkey: key } = await this.#register(slot, bytes);
      await announce(place, { offset, addr, key, length });
    } catch (error) {
      await end();
      throw error;
    }
    return new IoMapping(bytes, offset, end);
  }

  async #register(slot: Slot, bytes: Uint8Array): Promise<MemoryRegion> {
    const registering = this.#pd.registerMr(bytes, { access: { remoteWrite: true } }).then((mr) => {
      slot.mr = mr;
      return mr;
    });
    this.#registering.add(registering);
    return registering.finally(() => this.#registering.delete(registering));
  }

  /** The peer's memory at an offset, from there on; undefined where it offers none. */
  find(offset: bigint): MappingEntry | undefined {
    for (let at = 0; at < this.#entries.byteLength; at += MAPPING_BYTES) {
      const entry = decodeMapping(this.#entries, at, true);
      const within = offset - entry.offset;
      if (within < 0n || within >= BigInt(entry.length)) continue;
      const addr = BigInt.asUintN(64, entry.addr + within);
      return { offset, addr, key: entry.key, length: entry.length - Number(within) };
    }
    return undefined;
  }

  /** Takes back all that we offer. */
  async close(): Promise<void> {
    await Promise.allSettled(this.#registering);
    for (const slot of this.#slots.splice(0)) await slot?.mr?.deregister().catch(() => {});
  }
}
