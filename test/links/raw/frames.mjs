/**
 * The frames of test/links/raw-packet.test.ts, which both ends derive from their number: length, addresses and bytes.
 * EtherTypes 0x88b5 and 0x88b6 are those of local experiments (IEEE 802).
 */
export const DATA_TYPE = 0x88b5;
export const CREDIT_TYPE = 0x88b6;
export const HEADER_BYTES = 14 + 4;
const MIN = 60;
const MAX = 9000;
/** Bytes that frames are cut from: no two frames in a row begin at one place. */
export const PATTERN_BYTES = 1 << 20;

export function pattern() {
  const bytes = new Uint8Array(PATTERN_BYTES);
  let state = 0x9e37_79b9;
  for (let i = 0; i < bytes.length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[i] = state >>> 24;
  }
  return bytes;
}

/** Bytes of frame `number`, and where in the pattern its payload begins. */
export function shapeOf(number) {
  const mixed = Math.imul(number ^ (number >>> 15), 0x2c1b_3c6d) >>> 0;
  const length = MIN + (mixed % (MAX - MIN + 1));
  return { length, from: (mixed >>> 4) % (PATTERN_BYTES - MAX) };
}

/** Writes the header of a frame: two addresses, the type, a number. */
export function writeHeader(bytes, type, number) {
  bytes.set([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  view.setUint16(12, type);
  view.setUint32(14, number);
}

export const filterOf = (type) => [[{ offset: 12, value: Uint8Array.of(type >> 8, type & 0xff) }]];
