/**
 * Pause frames of Ethernet: PAUSE (IEEE 802.3 annex 31B) stops all traffic of the link partner, PFC (priority-based flow
 * control, IEEE 802.1Q clause 36, 802.3 annex 31D) that of single priorities. They go from port to port: no switch
 * forwards them.
 *
 *     0 opcode: 0x0001 PAUSE   2 quanta
 *     0 opcode: 0x0101 PFC     2 class enable vector, a bit for each priority   4 quanta of priorities 0 … 7, two bytes each
 *
 * One quantum is the time of 512 bits at the speed of the link; 0 quanta end the pause.
 */
import { checked, setU16, u16 } from './bytes.ts';

/** EtherType of MAC control frames. */
export const MAC_CONTROL = 0x8808;

export const PauseOpcode = { PAUSE: 0x0001, PFC: 0x0101 } as const;

/** The bits of a quantum. */
export const PAUSE_QUANTUM_BITS = 512;

const PRIORITIES = 8;
const PFC_BYTES = 4 + 2 * PRIORITIES;
const PAUSE_BYTES = 4;

/** The method by which Node's console shows an object. */
const inspect: unique symbol = Symbol.for('nodejs.util.inspect.custom');

/** A pause frame's content. One object may be filled for many frames. */
export class PauseValue {
  /** One of `PauseOpcode`. */
  opcode: number = PauseOpcode.PFC;
  /** Bits of the priorities that it speaks of; 0xff for PAUSE, which means all of them. */
  enabled = 0;
  /** Quanta by priority; 0 ends the pause. Those of other priorities mean nothing. */
  readonly quanta = new Uint16Array(PRIORITIES);

  /** One line for console.log: the quanta of the priorities that it speaks of. */
  [inspect](): string {
    const { opcode, enabled } = this;
    const quanta = [...this.quanta].flatMap((count, i) => (enabled & (1 << i) ? `${i}: ${count}` : []));
    return `${this.constructor.name} { ${opcode === PauseOpcode.PAUSE ? 'PAUSE' : 'PFC'}, quanta by priority: { ${quanta.join(', ')} } }`;
  }
}

/** Reads the MAC control header at `o` into `value`; false where it is no whole pause frame. */
export function readPause(b: Uint8Array, o: number, end: number, value: PauseValue): boolean {
  if (o + PAUSE_BYTES > end) return false;
  const opcode = u16(b, o);
  if (opcode === PauseOpcode.PAUSE) {
    value.opcode = opcode;
    value.enabled = 0xff;
    value.quanta.fill(u16(b, o + 2));
    return true;
  }
  if (opcode !== PauseOpcode.PFC || o + PFC_BYTES > end) return false;
  value.opcode = opcode;
  value.enabled = b[o + 3];
  for (let i = 0; i < PRIORITIES; i++) value.quanta[i] = u16(b, o + 4 + 2 * i);
  return true;
}

/**
 * A PFC frame of 60 bytes.
 * @param source MAC address of the port that asks for the pause
 * @param quanta by priority; absent ones are not enabled
 * @throws RangeError for a priority or quanta that do not fit
 */
export function buildPfc(
  source: Uint8Array,
  quanta: Readonly<Record<number, number>>,
): Uint8Array<ArrayBuffer> {
  const frame = new Uint8Array(60);
  // The reserved multicast address, which bridges do not forward.
  frame.set([0x01, 0x80, 0xc2, 0, 0, 0x01]);
  frame.set(source, 6);
  setU16(frame, 12, MAC_CONTROL);
  setU16(frame, 14, PauseOpcode.PFC);
  for (const [priority, value] of Object.entries(quanta)) {
    const p = checked('PFC priority', Number(priority), 3);
    frame[17] |= 1 << p;
    setU16(frame, 18 + 2 * p, checked('PFC quanta', value, 16));
  }
  return frame;
}

/** `PFC priority 3 0xffff quanta, priority 4 resumes`; `PAUSE 0xffff quanta`. */
export function describePause({ opcode, enabled, quanta }: PauseValue): string {
  const amount = (value: number) => (value === 0 ? 'resumes' : `${value} quanta`);
  if (opcode === PauseOpcode.PAUSE) return `PAUSE ${amount(quanta[0])}`;
  const parts: string[] = [];
  for (let i = 0; i < PRIORITIES; i++) {
    if (enabled & (1 << i)) parts.push(`priority ${i} ${amount(quanta[i])}`);
  }
  return `PFC ${parts.length === 0 ? 'of no priority' : parts.join(', ')}`;
}
