/** Keys of the tables that find a connection by its peer's identity: a character a byte, to be small. */
import type { Route } from './parameters.ts';

const idBytes = new DataView(new ArrayBuffer(12));
const queuePairBytes = new DataView(new ArrayBuffer(28));
const idKeyOf = keyOf(idBytes);
const queuePairKeyOf = keyOf(queuePairBytes);

/** By CA GUID and communication id. */
export function idKey(guid: bigint, id: number): string {
  idBytes.setBigUint64(0, guid);
  idBytes.setUint32(8, id);
  return idKeyOf();
}

/** By CA GUID, QPN and address. */
export function queuePairKey(guid: bigint, qpn: number, { gid }: Route): string {
  queuePairBytes.setBigUint64(0, guid);
  queuePairBytes.setUint32(8, qpn);
  for (let i = 0; i < 16; i++) queuePairBytes.setUint8(12 + i, gid[i]);
  return queuePairKeyOf();
}

/** Takes a key off, unless it is of another by now. */
export function dropFrom<K, V>(map: Map<K, V>, at: K, value: V): void {
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
