/** Numbers, times and names as findings write them. */
import type { Connection } from './analysis.ts';

/** `1 packet`, `41 packets`. */
export const many = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;

/** Nanoseconds in the unit that fits: `67 ms`, `1.24 s`, `870 µs`. */
export function duration(nanoseconds: number): string {
  const units = [
    [1e9, 's'],
    [1e6, 'ms'],
    [1e3, 'µs'],
  ] as const;
  for (const [size, unit] of units) {
    if (nanoseconds < size) continue;
    const value = nanoseconds / size;
    return `${value >= 100 ? value.toFixed(0) : Number(value.toPrecision(3))} ${unit}`;
  }
  return `${Math.round(nanoseconds)} ns`;
}

/** A time in the capture: `at 1.240 s`. */
export const moment = (nanoseconds: number): string => `at ${(nanoseconds / 1e9).toFixed(3)} s`;

export const qpName = (qpn: number): string => (qpn < 0 ? '?' : `0x${qpn.toString(16)}`);

/** One direction of a connection, by its queue pairs: `QP 0x12 → 0x11`. */
export function flowName({ a, b }: Pick<Connection, 'a' | 'b'>, from: 'a' | 'b'): string {
  const [sender, receiver] = from === 'a' ? [a, b] : [b, a];
  return `QP ${qpName(sender.qpn)} → ${qpName(receiver.qpn)}`;
}
