/** Times, sizes and numbers as text: the same in the ladder, the report and its charts. */

const NANOSECONDS = 1e9;

const grouped = new Intl.NumberFormat('en-US');

/** `1,234,567` */
export const formatCount = (value: number): string => grouped.format(value);

/** `3 packets`, `1 packet` */
export const counted = (value: number, one: string, many = `${one}s`): string =>
  `${formatCount(value)} ${value === 1 ? one : many}`;

/** A point in time, given in nanoseconds since the first frame: `1.240123 s`. */
export const formatTime = (nanoseconds: number): string => `${formatSeconds(nanoseconds)} s`;

/** The same without its unit, for a column. */
export const formatSeconds = (nanoseconds: number): string => (nanoseconds / NANOSECONDS).toFixed(6);

/** A span of nanoseconds in the unit that fits, with three digits: `67.1 ms`. */
export function formatDuration(nanoseconds: number): string {
  const size = Math.abs(nanoseconds);
  // Where rounding makes 1000 of it, the next unit fits better.
  if (size < 999.5) return `${Number(nanoseconds.toPrecision(3))} ns`;
  if (size < 999_500) return `${Number((nanoseconds / 1e3).toPrecision(3))} µs`;
  if (size < 999_500_000) return `${Number((nanoseconds / 1e6).toPrecision(3))} ms`;
  const seconds = nanoseconds / NANOSECONDS;
  return size < 1000 * NANOSECONDS
    ? `${Number(seconds.toPrecision(3))} s`
    : `${formatCount(Math.round(seconds))} s`;
}

/** `512 B`, `2.93 KiB`, `1.5 GiB` */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1023.5 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : Number(value.toPrecision(3))} ${units[unit]}`;
}

/** Bits a second: `3.7 Mbit/s` */
export function formatRate(bitsPerSecond: number): string {
  const units = ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s', 'Tbit/s'];
  let value = bitsPerSecond;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}

/** `QP 0x11`; `QP ?` where the number was never seen (−1). */
export const formatQp = (qpn: number): string => `QP ${qpn < 0 ? '?' : `0x${qpn.toString(16)}`}`;

/** `10.0.0.1 QP 0x11` */
export const formatEndpoint = ({ address, qpn }: { address: string; qpn: number }): string =>
  `${address} ${formatQp(qpn)}`;

/** A PSN in decimal, and in hexadecimal as perftest, rxe and tcpdump print it: `1193046 = 0x123456`. */
export const formatPsn = (psn: number): string => `${psn} = 0x${psn.toString(16).padStart(6, '0')}`;

/** A share in percent, `54 %`; what is there but rounds to nothing is `< 0.1 %`. */
export function formatShare(part: number, whole: number): string {
  if (whole === 0) return '0 %';
  const percent = (100 * part) / whole;
  if (part > 0 && percent < 0.1) return '< 0.1 %';
  return `${percent.toFixed(percent < 10 ? 1 : 0)} %`;
}
