/** Keys of the tables that find a connection by its peer's identity: a character a byte, to be small. */
import type { Route } from './parameters.ts';

const idBytes = new DataView(new ArrayBuffer(12));
const queuePairBytes = new DataView(new ArrayBuffer(28));

/** By CA GUID and communication id. */
export function idKey(guid: bigint, id: number): string {
  idBytes.setBigUint64(0, guid);
  idBytes.setUint32(8, id);
  return String.fromCharCode(...new Uint8Array(idBytes.buffer));
}

/** By CA GUID, QPN and address. */
export function queuePairKey(guid: bigint, qpn: number, { gid }: Route): string {
  queuePairBytes.setBigUint64(0, guid);
  queuePairBytes.setUint32(8, qpn);
  const bytes = new Uint8Array(queuePairBytes.buffer);
  bytes.set(gid, 12);
  return String.fromCharCode(...bytes);
}

/** Takes a key off, unless it is of another by now. */
export function dropFrom<K, V>(map: Map<K, V>, at: K, value: V): void {
  if (map.get(at) === value) map.delete(at);
}
