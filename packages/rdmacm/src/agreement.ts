/**
 * Sizes of the queues of both ends of a message connection, in the last 12 bytes of the private data of REQ and REP.
 *
 * | byte | |
 * |---|---|
 * | 0 | version, 1. Later versions keep these fields |
 * | 1 | 0 |
 * | 2 | `slots`, big-endian: receives that this side keeps posted |
 * | 4 | `maxMessage`, big-endian: bytes that each of them takes |
 * | 8 | `MAGIC`, big-endian |
 *
 * A peer without it (a program of librdmacm, an id of the program's own) gets and sends private data as it is: its sizes are not known.
 */

const BYTES = 12;
const VERSION = 1;
/** "nRms": private data of programs ends in zeros, or in bytes of theirs. */
const MAGIC = 0x6e526d73;

/** Sizes of one side, or those that both have agreed on. */
export interface Sizes {
  maxMessage: number;
  slots: number;
}

/** Whether private data leaves room for the sizes. */
const hasRoom = (privateData: Uint8Array | undefined, room: number): boolean =>
  (privateData?.length ?? 0) <= room - BYTES;

/** Private data of the program with our sizes behind it; as it is where it leaves no room. */
export function withSizes(
  privateData: Uint8Array | undefined,
  room: number,
  { maxMessage, slots }: Sizes,
): Uint8Array | undefined {
  if (!hasRoom(privateData, room)) return privateData;
  const bytes = new Uint8Array(room);
  if (privateData) bytes.set(privateData);
  const view = new DataView(bytes.buffer, room - BYTES);
  view.setUint8(0, VERSION);
  view.setUint16(2, slots);
  view.setUint32(4, maxMessage);
  view.setUint32(8, MAGIC);
  return bytes;
}

/**
 * Takes the peer's sizes out of its private data: its program's own bytes are left, padded with zeros. Sizes that no peer can have
 * are ignored: a stranger may send anything.
 */
export function takeSizes(privateData: Uint8Array): { privateData: Uint8Array; sizes: Sizes | undefined } {
  const start = privateData.length - BYTES;
  if (start < 0) return { privateData, sizes: undefined };
  const view = new DataView(privateData.buffer, privateData.byteOffset + start, BYTES);
  const [version, slots, maxMessage] = [view.getUint8(0), view.getUint16(2), view.getUint32(4)];
  if (view.getUint32(8) !== MAGIC || version < VERSION || slots === 0 || maxMessage === 0)
    return { privateData, sizes: undefined };
  const own = privateData.slice();
  own.fill(0, start);
  return { privateData: own, sizes: { maxMessage, slots } };
}

/** The smaller ones; ours where the peer has named none. */
export const agreed = (own: Sizes, peers: Sizes | undefined): Sizes => ({
  maxMessage: Math.min(own.maxMessage, peers?.maxMessage ?? own.maxMessage),
  slots: Math.min(own.slots, peers?.slots ?? own.slots),
});
