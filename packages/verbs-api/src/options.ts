/** Checks of a program's arguments: names that do not exist, the nearest right one, types. */
import { invalid, type RoceError } from '@node-roce/transport';

/** The type of an option, and how an error calls it. */
export interface OptionType {
  readonly expected: string;
  readonly is: (value: unknown) => boolean;
}

const type = (expected: string, is: (value: unknown) => boolean): OptionType => ({ expected, is });

export const BOOLEAN = type('true or false', (value) => typeof value === 'boolean');
export const STRING = type('a string', (value) => typeof value === 'string');
export const BIGINT = type('a bigint', (value) => typeof value === 'bigint');
export const INTEGER = type(
  'a whole number of 0 or more',
  (value) => Number.isSafeInteger(value) && (value as number) >= 0,
);
/** A whole number of a range, both ends included. */
export const within = (least: number, most: number): OptionType =>
  type(
    `${least} … ${most}`,
    (value) => Number.isInteger(value) && (value as number) >= least && (value as number) <= most,
  );
export const NUMBER = type('a number', (value) => typeof value === 'number');
export const OBJECT = type('an object', (value) => typeof value === 'object' && value !== null);
export const LIST = type('a list', Array.isArray);
export const FUNCTION = type('a function', (value) => typeof value === 'function');
export const BYTES = type('a Uint8Array', (value) => value instanceof Uint8Array);
export const SIGNAL = type('an AbortSignal', (value) => value instanceof AbortSignal);
/** Any value, or one that is checked elsewhere. */
export const ANY = type('anything', () => true);
export const oneOf = (...values: readonly string[]): OptionType =>
  type(values.join(', '), (value) => values.includes(value as string));
/** A list of some of these words. */
export const listOf = (...values: readonly string[]): OptionType =>
  type(
    `a list of: ${values.join(', ')}`,
    (value) => Array.isArray(value) && value.every((each) => values.includes(each)),
  );
export const either = (...types: readonly OptionType[]): OptionType =>
  type(types.map(({ expected }) => expected).join(', or '), (value) => types.some(({ is }) => is(value)));

/** Checks an argument. Throws EINVAL that names it and what was expected. */
export function checkArgument(attribute: string, value: unknown, { is, expected }: OptionType): void {
  if (!is(value)) throw invalid(attribute, described(value), expected);
}

/** The options of a call by name. */
export type OptionTypes = Readonly<Record<string, OptionType>>;

/** More about names: common mistakes, and options that belong one level down. */
export interface OptionHints {
  /** The right name of a wrong one that is not near it. */
  readonly aliases?: Readonly<Record<string, string>>;
  /** Names that belong into an option which is an object. */
  readonly nested?: Readonly<Record<string, readonly string[]>>;
}

/**
 * Checks an object of options. Members that are undefined count as absent.
 *
 * @param attribute its own name; '' for the argument of a call
 * @throws RoceError (EINVAL) that names the option, and the nearest right name or what was expected
 */
export function checkOptions(
  attribute: string,
  given: unknown,
  types: OptionTypes,
  hints: OptionHints = {},
): void {
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw invalid(
      attribute || 'options',
      described(given),
      `an object with ${Object.keys(types).join(', ')}`,
    );
  for (const name in given) {
    const value = (given as Record<string, unknown>)[name];
    if (value === undefined) continue;
    // Members that every object inherits (`constructor`) are no types of options.
    const expected = types[name];
    if (typeof expected?.is === 'function' && expected.is(value)) continue;
    const path = attribute === '' ? name : `${attribute}.${name}`;
    if (!Object.hasOwn(types, name)) throw unknownName(path, name, Object.keys(types), hints);
    throw invalid(path, described(value), expected.expected);
  }
}

/** An error for a name that does not exist. */
function unknownName(
  path: string,
  name: string,
  names: readonly string[],
  { aliases = {}, nested = {} }: OptionHints = {},
): RoceError {
  for (const [outer, inner] of Object.entries(nested))
    if (inner.includes(name)) return invalid(path, `belongs into ${outer}`, `${outer}: { ${name} }`);
  const meant = (Object.hasOwn(aliases, name) ? aliases[name] : undefined) ?? nearest(name, names);
  return invalid(path, 'there is no such option', meant === undefined ? names.join(', ') : `${meant}`);
}

/** A value for a message: short, and with its type where that is what is wrong. */
export function described(value: unknown): string {
  if (value === null || value === undefined) return `${value}`;
  if (typeof value === 'string') return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (typeof value === 'number' || typeof value === 'boolean') return `${value}`;
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'object') return `an object of class ${value.constructor?.name ?? 'null'}`;
  return `a ${typeof value}`;
}

/** The name that a misspelt one may have meant: equal but for case, its beginning, or few edits away. */
export function nearest(typed: string, names: readonly string[]): string | undefined {
  const lower = typed.toLowerCase();
  let best: string | undefined;
  let least = Math.max(2, Math.floor(typed.length / 3)) + 1;
  for (const name of names) {
    const isStart = lower.length > 2 && name.toLowerCase().startsWith(lower);
    const distance = isStart ? 1 : edits(lower, name.toLowerCase());
    if (distance < least) {
      least = distance;
      best = name;
    }
  }
  return best;
}

/** Insertions, deletions, replacements and exchanges of neighbours from a to b (Damerau-Levenshtein). */
function edits(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, i) => i)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      let cost = Math.min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + same);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        cost = Math.min(cost, rows[i - 2][j - 2] + 1);
      row.push(cost);
    }
    rows.push(row);
  }
  return rows[a.length][b.length];
}
