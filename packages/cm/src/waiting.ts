/** Requests that wait for the program. */
import { type CmMessage, decodeCm, MAD_BYTES } from '@node-roce/wire';
import type { Route } from './parameters.ts';

/** Bytes of an entry: the MAD; then the GID, and the numbers of route and listener. */
const ENTRY_BYTES = MAD_BYTES + 16 + 4 * 4;
const GID = MAD_BYTES;
const NUMBERS = GID + 16;
/** Entries that are allocated at a time. */
const CHUNK = 32;

/** A request, as its connection needs it. */
export interface WaitingRequest {
  message: CmMessage<'REQ'>;
  route: Route;
  /** Number of the listener. */
  listener: number;
}

/**
 * Requests as they came. Strangers can fill a backlog, so each takes little more than its 256 bytes until the program looks at
 * it; a decoded one with its connection takes four times that.
 */
export class WaitingRequests {
  readonly #places = new Map<number, number>();
  readonly #free: number[] = [];
  #chunks: DataView[] = [];

  get size(): number {
    return this.#places.size;
  }

  has(id: number): boolean {
    return this.#places.has(id);
  }

  /** The ids of all. */
  ids(): number[] {
    return [...this.#places.keys()];
  }

  /** Keeps the MAD at `bytes[at]`, a REQ that parses. */
  add(id: number, bytes: Uint8Array, at: number, { route, listener }: Omit<WaitingRequest, 'message'>): void {
    const place = this.#free.pop() ?? this.#grow();
    const chunk = this.#chunks[Math.floor(place / CHUNK)];
    const start = (place % CHUNK) * ENTRY_BYTES;
    const entry = new Uint8Array(chunk.buffer, start, ENTRY_BYTES);
    entry.set(bytes.subarray(at, at + MAD_BYTES));
    entry.set(route.gid, GID);
    const { sgidIndex, flowLabel, trafficClass, hopLimit } = route;
    chunk.setUint32(start + NUMBERS, sgidIndex);
    chunk.setUint32(start + NUMBERS + 4, listener);
    chunk.setUint32(start + NUMBERS + 8, flowLabel);
    chunk.setUint8(start + NUMBERS + 12, trafficClass);
    chunk.setUint8(start + NUMBERS + 13, hopLimit);
    this.#places.set(id, place);
  }

  get(id: number): WaitingRequest | undefined {
    const place = this.#places.get(id);
    if (place === undefined) return undefined;
    const chunk = this.#chunks[Math.floor(place / CHUNK)];
    const start = (place % CHUNK) * ENTRY_BYTES;
    const entry = new Uint8Array(chunk.buffer, start, ENTRY_BYTES);
    const decoded = decodeCm(entry, 0);
    if (!decoded.ok || decoded.message.name !== 'REQ') throw new Error('a request that waits does not parse');
    const route = {
      gid: entry.slice(GID, GID + 16),
      sgidIndex: chunk.getUint32(start + NUMBERS),
      flowLabel: chunk.getUint32(start + NUMBERS + 8),
      trafficClass: chunk.getUint8(start + NUMBERS + 12),
      hopLimit: chunk.getUint8(start + NUMBERS + 13),
    };
    return { message: decoded.message, route, listener: chunk.getUint32(start + NUMBERS + 4) };
  }

  delete(id: number): void {
    const place = this.#places.get(id);
    if (place === undefined) return;
    this.#places.delete(id);
    this.#free.push(place);
    if (this.#places.size > 0) return;
    // A flood is over: its memory goes.
    this.#chunks = [];
    this.#free.length = 0;
  }

  /** Allocates a chunk; returns one of its places. */
  #grow(): number {
    const first = this.#chunks.length * CHUNK;
    this.#chunks.push(new DataView(new ArrayBuffer(CHUNK * ENTRY_BYTES)));
    for (let place = first + CHUNK - 1; place > first; place--) this.#free.push(place);
    return first;
  }
}
