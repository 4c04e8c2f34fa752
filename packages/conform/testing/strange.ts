/** Devices that send what no device should: for the tester, which must not break. */
import type { ModelPacket, SimPacket } from '@node-roce/sim';
import type { Mutant } from './broken-device.ts';

/** A whole number below `n`. */
type Draw = (n: number) => number;
type Strange = Omit<Mutant, 'seenBy'>;

/** UDP payloads end there; the ICRC is behind. */
const GIANT = 60_000;

/** Every third packet leaves changed. */
const someBytes = (draw: Draw, change: (bytes: Uint8Array) => Uint8Array): Strange => ({
  leave: (packet: SimPacket) => (draw(3) === 0 ? { ...packet, bytes: change(packet.bytes.slice()) } : packet),
});

const some = (draw: Draw, change: (packet: ModelPacket) => readonly ModelPacket[]): Strange => ({
  send: (packet) => (draw(3) === 0 ? change(packet) : [packet]),
});

function filled(draw: Draw, length: number): Uint8Array {
  return Uint8Array.from({ length }, () => draw(256));
}

function spoilt(draw: Draw, bytes: Uint8Array, from = 0): Uint8Array {
  for (let i = draw(6); i >= 0; i--) bytes[from + draw(bytes.length - from)] = draw(256);
  return bytes;
}

/** Whether a packet goes to the queue pair of the connection manager. */
const isMad = (bytes: Uint8Array): boolean => bytes[5] === 0 && bytes[6] === 0 && bytes[7] === 1;

/** By name, each with the dice that it throws. */
export const STRANGE: Readonly<Record<string, (draw: Draw) => Strange>> = {
  'any fields, to the right queue pair': (draw) =>
    someBytes(draw, (bytes) => (bytes.length <= 8 || isMad(bytes) ? bytes : spoilt(draw, bytes, 8))),
  'packets cut': (draw) => someBytes(draw, (bytes) => bytes.slice(0, draw(bytes.length))),
  'packets of random bytes': (draw) => someBytes(draw, () => filled(draw, draw(200))),
  'packets with some other bytes': (draw) => someBytes(draw, (bytes) => spoilt(draw, bytes)),
  'other opcodes': (draw) =>
    someBytes(draw, (bytes) => {
      bytes[0] = draw(256);
      return bytes;
    }),
  'giant packets': (draw) =>
    someBytes(draw, (bytes) => {
      const giant = new Uint8Array(GIANT);
      giant.set(bytes);
      return giant;
    }),
  'no packets': (draw) => some(draw, () => []),
  'packets many times': (draw) => some(draw, (packet) => Array(draw(300)).fill(packet)),
  'any syndromes and MSNs': (draw) =>
    some(draw, (packet) => [{ ...packet, aeth: { syndrome: draw(256), msn: draw(1 << 24) } }]),
  'any PSNs': (draw) => some(draw, (packet) => [{ ...packet, psn: draw(1 << 24) }]),
  'any lengths': (draw) => some(draw, (packet) => [{ ...packet, payload: filled(draw, draw(5000)) }]),
  'MADs with some other bytes': (draw) => ({ sendMad: (mad) => [spoilt(draw, mad.slice(), 24)] }),
  'MADs of other kinds': (draw) => ({
    sendMad: (mad) => {
      const other = mad.slice();
      // The attribute: 0x10 to 0x1a are those of the connection manager.
      other[17] = 0x10 + draw(11);
      return [mad, other];
    },
  }),
  'MADs many times': (draw) => ({ sendMad: (mad) => Array(draw(300)).fill(mad) }),
  'other events': (draw) => ({
    events: (events) => [...events, ...Array(draw(3)).fill('LAST_WQE_REACHED')],
  }),
};
