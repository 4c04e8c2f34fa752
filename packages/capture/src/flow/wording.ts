/** Times and names as findings write them. */
import { formatQp } from '../units.ts';
import type { Connection } from './analysis.ts';

/** A time in the capture: `at 1.240 s`. */
export const moment = (nanoseconds: number): string => `at ${(nanoseconds / 1e9).toFixed(3)} s`;

/** One direction of a connection, by its queue pairs: `QP 0x12 → 0x11`. */
export function flowName({ a, b }: Pick<Connection, 'a' | 'b'>, from: 'a' | 'b'): string {
  const [sender, receiver] = from === 'a' ? [a, b] : [b, a];
  return `${formatQp(sender.qpn)} → ${formatQp(receiver.qpn).slice(3)}`;
}
