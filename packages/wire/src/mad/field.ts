/**
 * Fields of management datagrams at any bit offset, as rows of a table: a layout names the fields of a message, and
 * its values are read and written by the rows. Bits are counted as the specification counts them, 0 is the most
 * significant one of a byte.
 */
import { checked, checked64, setU64, u64 } from '../bytes.ts';

export type FieldKind = 'number' | 'flag' | 'word' | 'guid' | 'gid' | 'data';

/** A field: where it is, and how its value is read and written. `o` is the offset of the message. */
export interface Field<T> {
  readonly kind: FieldKind;
  /** First byte. */
  readonly at: number;
  /** Bytes that the field touches. */
  readonly bytes: number;
  get(b: Uint8Array, o: number): T;
  /** @throws RangeError for a value that does not fit */
  set(b: Uint8Array, o: number, value: T, name: string): void;
}

export type Layout = Readonly<Record<string, Field<unknown>>>;

/** The values of a message with this layout. */
export type ValuesOf<L> = { -readonly [K in keyof L]: L[K] extends Field<infer T> ? T : never };

/** A number of 1 … 32 bits; `skip` bits of its first byte belong to others. */
export function uint(at: number, bits: number, skip = 0): Field<number> {
  const bytes = Math.ceil((skip + bits) / 8);
  const unit = 2 ** (bytes * 8 - skip - bits);
  const range = 2 ** bits;
  const whole = (b: Uint8Array, o: number) => {
    let value = 0;
    for (let i = 0; i < bytes; i++) value = value * 256 + (b[o + at + i] ?? 0);
    return value;
  };
  const get = (b: Uint8Array, o: number) => Math.floor(whole(b, o) / unit) % range;
  return {
    kind: 'number',
    at,
    bytes,
    get,
    set: (b, o, value, name) => {
      let rest = whole(b, o) + (checked(name, value, bits) - get(b, o)) * unit;
      for (let i = bytes - 1; i >= 0; i--) {
        b[o + at + i] = rest % 256;
        rest = Math.floor(rest / 256);
      }
    },
  };
}

/** Bits `high` … `low` of a byte, 7 being the most significant, as layouts in the specification are written. */
export const bitsOf = (at: number, high: number, low: number): Field<number> =>
  uint(at, high - low + 1, 7 - high);

/** One bit of a byte, 7 being the most significant. */
export function flag(at: number, bit: number): Field<boolean> {
  const field = bitsOf(at, bit, bit);
  return {
    ...field,
    kind: 'flag',
    get: (b, o) => field.get(b, o) === 1,
    set: (b, o, value, name) => field.set(b, o, value ? 1 : 0, name),
  };
}

/** 64 bits. */
export function word(at: number, kind: 'word' | 'guid' = 'word'): Field<bigint> {
  return {
    kind,
    at,
    bytes: 8,
    get: (b, o) => u64(b, o + at),
    set: (b, o, value, name) => setU64(b, o + at, checked64(name, value)),
  };
}

export const guid = (at: number): Field<bigint> => word(at, 'guid');

/** Bytes; fewer may be set, zeros follow them. Bytes that a capture cut off read as zeros. */
export function data(at: number, bytes: number, kind: 'data' | 'gid' = 'data'): Field<Uint8Array> {
  return {
    kind,
    at,
    bytes,
    get: (b, o) => {
      const value = new Uint8Array(bytes);
      value.set(b.subarray(o + at, o + at + bytes));
      return value;
    },
    set: (b, o, value, name) => {
      if (value.length > bytes)
        throw new RangeError(`${name} of ${value.length} bytes: expected ${bytes} at most`);
      b.fill(0, o + at, o + at + bytes);
      b.set(value, o + at);
    },
  };
}

export const gid = (at: number): Field<Uint8Array> => data(at, 16, 'gid');

/** All values of a message. */
export const readFields = <L extends Layout>(layout: L, b: Uint8Array, o: number): ValuesOf<L> =>
  Object.fromEntries(Object.entries(layout).map(([name, field]) => [name, field.get(b, o)])) as ValuesOf<L>;

/** Writes the given values; bytes of other fields stay. */
export function writeFields<L extends Layout>(
  layout: L,
  b: Uint8Array,
  o: number,
  values: Partial<ValuesOf<L>>,
  message: string,
): void {
  for (const [name, value] of Object.entries(values)) {
    const field = layout[name];
    if (field === undefined) throw new TypeError(`${message} has no field ${name}`);
    if (value !== undefined) field.set(b, o, value, `${message} ${name}`);
  }
}
