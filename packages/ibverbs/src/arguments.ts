/** Members and arguments of numbers and lists: what C's types would refuse is EINVAL here, and names what it was. */
import { invalid } from '@node-roce/transport';
import { described } from '@node-roce/verbs-api/options';

/** A 64-bit value, which wraps; 0 where it was left out. */
export function word64(name: string, value: bigint | number | undefined): bigint {
  if (value === undefined) return 0n;
  if (typeof value === 'bigint') return value;
  if (Number.isSafeInteger(value)) return BigInt(value);
  throw invalid(name, described(value), 'a bigint, or a safe integer');
}

/** An integer, flags for example; 0 where it was left out. */
export function integer(name: string, value: number | undefined): number {
  if (value === undefined) return 0;
  if (Number.isInteger(value)) return value;
  throw invalid(name, described(value), 'an integer');
}

/** `comp_mask` of a struct that has these members alone, by the names of their bits; EINVAL for another bit. */
export function checkMask(name: string, mask: number, known = 0, expected = '0'): void {
  if ((known === 0 ? mask : mask & ~known) !== 0) throw invalid(name, `0x${mask.toString(16)}`, expected);
}

/** The first `count` structs of a list. */
export function structs<T extends object>(
  name: string,
  list: readonly T[],
  countName: string,
  count?: number,
): readonly T[] {
  if (!Array.isArray(list)) throw invalid(name, described(list), 'a list');
  const most = count ?? list.length;
  if (!(Number.isInteger(most) && most >= 0 && most <= list.length))
    throw invalid(countName, described(most), `0 … ${list.length}, the elements of ${name}`);
  const first = most === list.length ? list : list.slice(0, most);
  for (const [i, struct] of first.entries())
    if (typeof struct !== 'object' || struct === null)
      throw invalid(`${name}[${i}]`, described(struct), 'a struct');
  return first;
}
