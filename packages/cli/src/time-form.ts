/** How commands print the time of a packet: `--time`. */

/** `relative`: seconds since the first frame; `absolute`: date and time of this machine's time zone; `utc`. */
export type TimeForm = 'relative' | 'absolute' | 'utc';

const BILLION = 1_000_000_000n;
const pad = (value: number | bigint, digits: number): string => value.toString().padStart(digits, '0');

/** Seconds with a fraction of `digits` digits. */
export function seconds(ns: bigint, digits = 9): string {
  const size = ns < 0n ? -ns : ns;
  const fraction = pad(size % BILLION, 9).slice(0, digits);
  return `${ns < 0n ? '-' : ''}${size / BILLION}.${fraction}`;
}

/**
 * Date and time to the microsecond: `2026-11-28 13:45:26.123456`, in UTC with `Z`.
 * @param ns since 1970; of a time that no calendar has, its seconds are given
 */
export function dateText(ns: bigint, form: Exclude<TimeForm, 'relative'>): string {
  const whole = ns / BILLION - (ns % BILLION < 0n ? 1n : 0n);
  const date = new Date(Number(whole) * 1000);
  if (Number.isNaN(date.getTime())) return seconds(ns, 6);
  const micros = pad((ns - whole * BILLION) / 1000n, 6);
  if (form === 'utc') return `${date.toISOString().slice(0, 19).replace('T', ' ')}.${micros}Z`;
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1, 2)}-${pad(date.getDate(), 2)}`;
  return `${day} ${pad(date.getHours(), 2)}:${pad(date.getMinutes(), 2)}:${pad(date.getSeconds(), 2)}.${micros}`;
}

/** A time since the first frame as it was asked for. */
export function timeText(
  relative: bigint | undefined,
  absolute: bigint | undefined,
  form: TimeForm = 'relative',
): string {
  if (form === 'relative' || absolute === undefined)
    return relative === undefined ? '' : seconds(relative, 6);
  return dateText(absolute, form);
}

/** Prints nanoseconds since the first frame in a form; without the time of that frame, they stay what they are. */
export function timePrinter(form: TimeForm, startTime: string | undefined): (ns: number) => string {
  const start = startOf(startTime);
  return (ns) => {
    const relative = BigInt(Math.round(ns));
    return timeText(relative, start === undefined ? undefined : start + relative, form);
  };
}

/** Nanoseconds since 1970 of a capture's first frame, from `CaptureSummary.startTime`; undefined without one. */
export function startOf(startTime: string | undefined): bigint | undefined {
  const match = startTime === undefined ? null : /^(.*)\.(\d{9})Z$/.exec(startTime);
  if (match === null) return undefined;
  return BigInt(Date.parse(`${match[1]}Z`)) * 1_000_000n + BigInt(match[2]);
}
