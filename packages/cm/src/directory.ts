/** The connections of an adapter, and the ways to find them. */
import type { Connection } from './connection.ts';
import type { Route } from './parameters.ts';
import { type WaitingRequest, WaitingRequests } from './waiting.ts';

/**
 * Each connection is recorded once, by its id, and found by what a message or a queue pair names it by:
 *
 * | by | for |
 * |---|---|
 * | local communication id | messages and calls |
 * | the peer's CA GUID and communication id | repeated REQs, and REJs that do not know our id |
 * | the peer's CA GUID, QPN and address, except in TIMEWAIT | stale connections |
 * | local QPN | packets and migrations of a queue pair |
 *
 * The address, because a GUID is no secret: a stranger could else end connections of others, or keep a queue pair from connecting.
 *
 * A request that nobody has looked at stands for a connection. It becomes one when the program calls, or its sender gives up.
 */
export class Directory {
  readonly #connections = new Map<number, Connection>();
  readonly #waiting = new WaitingRequests();
  readonly #byPeerId = new Map<string, number>();
  readonly #byPeerQp = new Map<string, number>();
  readonly #byLocalQpn = new Map<number, Connection>();
  /** Connections in TIMEWAIT, in the order in which they came there. Strangers can bring some there, so they take no room of others. */
  readonly #resting = new Set<Connection>();
  readonly #limit: number;
  readonly #connectionOf: (id: number, request: WaitingRequest) => Connection;

  /**
   * @param limit connections at a time, and as many in TIMEWAIT
   * @param connectionOf makes the connection of a request
   */
  constructor(limit: number, connectionOf: (id: number, request: WaitingRequest) => Connection) {
    this.#limit = limit;
    this.#connectionOf = connectionOf;
  }

  /** Connections, and requests that wait. */
  get size(): number {
    return this.#connections.size + this.#waiting.size;
  }

  /** Whether there is no room for another connection. */
  get isFull(): boolean {
    return this.size - this.#resting.size >= this.#limit;
  }

  /** Entries by which connections are found. */
  get keys(): number {
    return this.#byPeerId.size + this.#byPeerQp.size + this.#byLocalQpn.size;
  }

  has(id: number): boolean {
    return this.#connections.has(id) || this.#waiting.has(id);
  }

  hasQpn(qpn: number): boolean {
    return this.#byLocalQpn.has(qpn);
  }

  /** The connections, without requests that wait; those that are removed meanwhile are among them. */
  get connections(): Connection[] {
    return [...this.#connections.values()];
  }

  /** The connection that the program, or a message, has changed or is about to change. */
  take(id: number): Connection | undefined {
    const connection = this.peek(id);
    if (connection && this.#waiting.has(id)) {
      this.#waiting.delete(id);
      this.#connections.set(id, connection);
    }
    return connection;
  }

  /** Takes the requests that wait: all, or those of one listener. */
  takeWaiting(listener?: number): void {
    for (const id of this.#waiting.ids(listener)) this.take(id);
  }

  /**
   * A connection as it is. That of a request that waits is made anew each time: in its state no message changes it but a REJ, and
   * repeated REQs are answered from it.
   */
  peek(id: number | undefined): Connection | undefined {
    if (id === undefined) return undefined;
    const connection = this.#connections.get(id);
    if (connection) return connection;
    const waiting = this.#waiting.get(id);
    return waiting && this.#connectionOf(id, waiting);
  }

  /** The request of an id, while it waits. */
  requestOf(id: number): WaitingRequest | undefined {
    return this.#waiting.get(id);
  }

  idOfPeer(guid: bigint, remoteId: number): number | undefined {
    return this.#byPeerId.get(idKey(guid, remoteId));
  }

  idOfPeerQp(guid: bigint, qpn: number, route: Route): number | undefined {
    return this.#byPeerQp.get(queuePairKey(guid, qpn, route));
  }

  ofLocalQpn(qpn: number): Connection | undefined {
    return this.#byLocalQpn.get(qpn);
  }

  /** Adds a connection of this side's. */
  add(connection: Connection): void {
    this.#connections.set(connection.id, connection);
  }

  /** Adds the request at `bytes[at]`, whose peer no other connection has. */
  addRequest(id: number, bytes: Uint8Array, at: number, request: WaitingRequest): void {
    this.#waiting.add(id, bytes, at, request);
    const { localCaGuid, localCommId, localQpn } = request.message;
    this.#byPeerId.set(idKey(localCaGuid, localCommId), id);
    this.#byPeerQp.set(queuePairKey(localCaGuid, localQpn, request.route), id);
  }

  /** Its peer is known from now on. False where another connection has the peer's id or queue pair. */
  addPeer({ id, remoteGuid, remoteId, remoteQpn, route }: Connection): boolean {
    const peerId = idKey(remoteGuid, remoteId);
    const peerQp = queuePairKey(remoteGuid, remoteQpn, route);
    if (this.#byPeerId.has(peerId) || this.#byPeerQp.has(peerQp)) return false;
    this.#byPeerId.set(peerId, id);
    this.#byPeerQp.set(peerQp, id);
    return true;
  }

  /** Its queue pair is known from now on. */
  addQpn(connection: Connection): void {
    this.#byLocalQpn.set(connection.localQpn, connection);
  }

  /**
   * The connection is in TIMEWAIT: its peer's queue pair no longer counts as connected and may have another one (§12.9.8.3.1; Linux `cm_enter_timewait`).
   * Returns the one that has rested longest, where too many do.
   */
  rest(connection: Connection): Connection | undefined {
    const { id, remoteGuid, remoteQpn, route } = connection;
    this.#resting.add(connection);
    dropFrom(this.#byPeerQp, queuePairKey(remoteGuid, remoteQpn, route), id);
    if (this.#resting.size <= this.#limit) return undefined;
    const [oldest] = this.#resting;
    return oldest;
  }

  remove(connection: Connection): void {
    const { id, remoteGuid, remoteId, remoteQpn, localQpn, route } = connection;
    this.#connections.delete(id);
    this.#resting.delete(connection);
    dropFrom(this.#byPeerId, idKey(remoteGuid, remoteId), id);
    dropFrom(this.#byPeerQp, queuePairKey(remoteGuid, remoteQpn, route), id);
    dropFrom(this.#byLocalQpn, localQpn, connection);
  }
}

/** Keys by a peer's identity: a character a byte, to be small. */
const idBytes = new DataView(new ArrayBuffer(12));
const queuePairBytes = new DataView(new ArrayBuffer(28));
const idKeyOf = keyOf(idBytes);
const queuePairKeyOf = keyOf(queuePairBytes);

/** By CA GUID and communication id. */
function idKey(guid: bigint, id: number): string {
  idBytes.setBigUint64(0, guid);
  idBytes.setUint32(8, id);
  return idKeyOf();
}

/** By CA GUID, QPN and address. */
function queuePairKey(guid: bigint, qpn: number, { gid }: Route): string {
  queuePairBytes.setBigUint64(0, guid);
  queuePairBytes.setUint32(8, qpn);
  for (let i = 0; i < 16; i++) queuePairBytes.setUint8(12 + i, gid[i]);
  return queuePairKeyOf();
}

/** Takes a key off, unless it is of another by now. */
function dropFrom<K, V>(map: Map<K, V>, at: K, value: V): void {
  if (map.get(at) === value) map.delete(at);
}

/** Makes a string of the bytes that stand there at the time: through a plain array, since a typed one is spread by its iterator. */
function keyOf({ buffer }: DataView): () => string {
  const bytes = new Uint8Array(buffer);
  const characters = new Array<number>(bytes.length).fill(0);
  return () => {
    for (let i = 0; i < bytes.length; i++) characters[i] = bytes[i];
    return String.fromCharCode(...characters);
  };
}
