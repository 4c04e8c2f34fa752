/** Requests that wait for the program. */
import { type CmMessage, decodeCm, gidEquals, MAD_BYTES } from '@node-roce/wire';
import type { RequestEvent, Route } from './parameters.ts';

// Offsets in an entry: the MAD, then its listener and its route.
const GID = MAD_BYTES;
const LISTENER = GID + 16;
const SGID_INDEX = LISTENER + 4;
const FLOW_LABEL = SGID_INDEX + 4;
const TRAFFIC_CLASS = FLOW_LABEL + 4;
const HOP_LIMIT = TRAFFIC_CLASS + 1;
const ENTRY_BYTES = FLOW_LABEL + 8;
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
  #chunks: ArrayBuffer[] = [];

  get size(): number {
    return this.#places.size;
  }

  has(id: number): boolean {
    return this.#places.has(id);
  }

  /** The ids of all, or of those to one listener. */
  ids(listener?: number): number[] {
    const all = [...this.#places];
    const chosen =
      listener === undefined
        ? all
        : all.filter(([, place]) => this.#entry(place).getUint32(LISTENER) === listener);
    return chosen.map(([id]) => id);
  }

  /** Keeps the MAD at `bytes[at]`, a REQ that parses. */
  add(id: number, bytes: Uint8Array, at: number, { route, listener }: Omit<WaitingRequest, 'message'>): void {
    const place = this.#free.pop() ?? this.#grow();
    const entry = this.#entry(place);
    const target = bytesOf(entry);
    target.set(bytes.subarray(at, at + MAD_BYTES));
    target.set(route.gid, GID);
    entry.setUint32(LISTENER, listener);
    entry.setUint32(SGID_INDEX, route.sgidIndex);
    entry.setUint32(FLOW_LABEL, route.flowLabel);
    entry.setUint8(TRAFFIC_CLASS, route.trafficClass);
    entry.setUint8(HOP_LIMIT, route.hopLimit);
    this.#places.set(id, place);
  }

  get(id: number): WaitingRequest | undefined {
    const place = this.#places.get(id);
    if (place === undefined) return undefined;
    const entry = this.#entry(place);
    const bytes = bytesOf(entry);
    const decoded = decodeCm(bytes, 0);
    if (!decoded.ok || decoded.message.name !== 'REQ') throw new Error('a request that waits does not parse');
    const route = {
      gid: bytes.slice(GID, GID + 16),
      sgidIndex: entry.getUint32(SGID_INDEX),
      flowLabel: entry.getUint32(FLOW_LABEL),
      trafficClass: entry.getUint8(TRAFFIC_CLASS),
      hopLimit: entry.getUint8(HOP_LIMIT),
    };
    return { message: decoded.message, route, listener: entry.getUint32(LISTENER) };
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

  #entry(place: number): DataView {
    const chunk = this.#chunks[Math.floor(place / CHUNK)];
    return new DataView(chunk, (place % CHUNK) * ENTRY_BYTES, ENTRY_BYTES);
  }

  /** Allocates a chunk; returns one of its places. */
  #grow(): number {
    const first = this.#chunks.length * CHUNK;
    this.#chunks.push(new ArrayBuffer(CHUNK * ENTRY_BYTES));
    for (let place = first + CHUNK - 1; place > first; place--) this.#free.push(place);
    return first;
  }
}

const bytesOf = ({ buffer, byteOffset, byteLength }: DataView) =>
  new Uint8Array(buffer, byteOffset, byteLength);

/** The event of a request. */
export function requestEvent(id: number, { message, route, listener }: WaitingRequest): RequestEvent {
  const { name: _name, transactionId: _tid, attributeModifier: _modifier, ...request } = message;
  const translated = !gidEquals(route.gid, message.primaryLocalGid);
  return { type: 'request', id, listener, route, request, translated };
}
