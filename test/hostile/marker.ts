/** Data of forged packets, to be looked for where they must not be. */

const MARKER = Uint8Array.of(0xde, 0xfa, 0xce, 0xd0, 0xf0, 0x0d, 0xfa, 0xce);

/** Fills bytes with the marker, over and over. */
export function filled<T extends Uint8Array>(bytes: T): T {
  for (let i = 0; i < bytes.length; i++) bytes[i] = MARKER[i % MARKER.length];
  return bytes;
}

/** Where the marker begins in a memory, or −1. */
export function markerIn(memory: Uint8Array): number {
  return Buffer.from(memory.buffer, memory.byteOffset, memory.byteLength).indexOf(MARKER);
}
