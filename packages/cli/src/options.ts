/** Options of a command: how they are declared, and how their text becomes a value or a usage error. */
import { parseIpAddress } from '@node-roce/wire';

/** What stands for standard input among a command's arguments: no file can have a NUL in its name. */
export const STDIN = '\0stdin';

/** The command line is wrong: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  /** The command whose help tells more, where one was named. */
  command: string | undefined;
}

/** Turns what the command line had into a value, or throws an error whose message says what is expected. */
export type Parse = (given: unknown) => unknown;

/** An option, the one place that parsing, help and checks read. */
export interface OptionSpec {
  /** As cac takes it: `-s, --size <bytes>`; without `<…>` it is a switch. */
  flags: string;
  summary: string;
  parse?: Parse;
  required?: boolean;
  /** Taken where the option is absent (a text is parsed like one that was typed), and shown in the help. */
  fallback?: number | string;
}

/** A whole number of `least` … `most`; `0x…` is understood, and so are K, M and G for powers of 1024. */
export const integer =
  (least: number, most: number): Parse =>
  (given) => {
    const match = /^(0x[0-9a-f]+|\d+)([kmg]?)$/i.exec(String(given));
    const unit = { '': 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30 }[match?.[2]?.toLowerCase() ?? ''] ?? 1;
    const value = match ? Number(match[1]) * unit : Number.NaN;
    if (!(value >= least && value <= most)) throw new Error(`a whole number of ${least} … ${most}`);
    return value;
  };

/** Any number of 0 … 100. */
export const percent: Parse = (given) => {
  const value = given === '' ? Number.NaN : Number(given);
  if (!(value >= 0 && value <= 100)) throw new Error('a number of 0 … 100');
  return value;
};

export const oneOf =
  (...values: readonly (number | string)[]): Parse =>
  (given) => {
    const found = values.find((value) => String(value) === String(given));
    if (found === undefined) throw new Error(`one of ${values.join(', ')}`);
    return found;
  };

/** Seconds, of any fraction, above 0. */
export const seconds: Parse = (given) => {
  const value = Number(given);
  if (!(Number.isFinite(value) && value > 0)) throw new Error('a number of seconds above 0');
  return value;
};

/** Seconds of any fraction, 0 included; as nanoseconds. */
export const nanoseconds: Parse = (given) => {
  const value = given === '' ? Number.NaN : Number(given);
  if (!(Number.isFinite(value) && value >= 0)) throw new Error('a number of seconds');
  return Math.round(value * 1e9);
};

/** Some of these, separated by commas. */
export const listOf =
  (...values: readonly string[]): Parse =>
  (given) => {
    const items = String(given).split(',');
    if (!items.every((item) => values.includes(item))) throw new Error(`some of ${values.join(',')}`);
    return items;
  };

export const text: Parse = (given) => {
  if (given === '' || given === true) throw new Error('a text');
  return String(given);
};

/** An IPv4 or IPv6 address, with or without `/length`; the text as it was typed. */
export const addressOrPrefix: Parse = (given) => {
  const [address = '', length, ...rest] = String(given).split('/');
  const bytes = parseIpAddress(address);
  const fits =
    length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= (bytes?.length ?? 0) * 8);
  if (bytes === undefined || !fits || rest.length > 0)
    throw new Error('an address, or a prefix such as 10.0.0.0/8');
  return String(given);
};

/** `--rx-depth <n>` → `rxDepth`, the key under which cac and the commands know the option. */
export function keyOf(option: OptionSpec): string {
  const long = /--([a-z-]+)/.exec(option.flags)![1]!;
  return long.replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

const nameOf = (option: OptionSpec) => /--[a-z-]+/.exec(option.flags)![0];

/** The values of a command's options: parsed, checked, and filled up with the fallbacks. */
export function readOptions(
  specs: readonly OptionSpec[],
  given: Record<string, unknown>,
): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const spec of specs) {
    const key = keyOf(spec);
    const raw = given[key];
    if (raw === undefined) {
      if (spec.required) throw new UsageError(`${spec.flags} is missing`);
      values[key] = typeof spec.fallback === 'string' ? spec.parse?.(spec.fallback) : spec.fallback;
      continue;
    }
    if (Array.isArray(raw)) throw new UsageError(`${nameOf(spec)} is given more than once`);
    if (spec.parse === undefined) {
      values[key] = raw === true;
      continue;
    }
    try {
      values[key] = spec.parse(raw);
    } catch (error) {
      throw new UsageError(`${nameOf(spec)} ${String(raw)}: expected ${(error as Error).message}`);
    }
  }
  return values;
}

/** The closest of the names that a mistyped one may have meant. */
export function closest(typed: string, names: readonly string[]): string | undefined {
  let best: string | undefined;
  let least = Math.max(2, Math.floor(typed.length / 3)) + 1;
  for (const name of names) {
    const steps = editDistance(typed, name);
    if (steps < least) {
      least = steps;
      best = name;
    }
  }
  return best;
}

// Levenshtein: insertions, deletions and replacements from a to b.
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length]!;
}
