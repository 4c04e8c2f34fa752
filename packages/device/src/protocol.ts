/** The messages of messages.ts, read and written. */
import {
  CALLS,
  type CallName,
  type Decoded,
  type Field,
  HEADER_BYTES,
  type Layout,
  type Reply,
  type Request,
  type Values,
} from './messages.ts';

/** A message that follows no rule: the connection it came over ends. */
export class Malformed extends Error {
  override readonly name = 'Malformed';
}

/** A call that fails with this errno. */
export class Failed extends Error {
  readonly errno: number;
  constructor(errno: number, reason = '') {
    super(reason);
    this.errno = errno;
  }
}

const isList = (field: Field): field is Extract<Field, readonly unknown[]> => Array.isArray(field);

/** Bytes of a field; of a list, of its count. */
function sizeOf(field: Field | 'u8'): number {
  if (typeof field === 'number') return field;
  if (field === 'u8') return 1;
  if (field === 'u64') return 8;
  if (field === 'u32' || isList(field)) return 4;
  return Object.values(field).reduce((sum: number, one) => sum + sizeOf(one), 0);
}

/** Reads a payload from its start. Every read checks that the bytes are there. */
class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  #take(length: number): number {
    const at = this.#at;
    if (length > this.#bytes.length - at) throw new Malformed('a payload that is too short');
    this.#at += length;
    return at;
  }

  value(field: Field): unknown {
    if (field === 'u32') return this.#bytes.readUInt32LE(this.#take(4));
    if (field === 'u64') return this.#bytes.readBigUInt64LE(this.#take(8));
    // In memory of their own.
    if (typeof field === 'number')
      return Uint8Array.prototype.slice.call(this.#bytes, this.#take(field), this.#at);
    if (isList(field)) return this.#list(field);
    const group: Record<string, unknown> = {};
    for (const [name, one] of Object.entries(field)) group[name] = this.value(one);
    return group;
  }

  #list([element, most]: Extract<Field, readonly unknown[]>): unknown {
    const count = this.#bytes.readUInt32LE(this.#take(4));
    if (count > most) throw new Malformed(`a list of ${count}`);
    return element === 'u8' ? this.value(count) : Array.from({ length: count }, () => this.value(element));
  }

  /** The payload ends here. */
  end(): void {
    if (this.#at !== this.#bytes.length) throw new Malformed('a payload that is too long');
  }
}

/** @throws Malformed for a payload that is shorter or longer than its layout */
export function decode<L extends Layout>(layout: L, payload: Buffer): Decoded<L> {
  const from = new Reader(payload);
  const value = from.value(layout);
  from.end();
  return value as Decoded<L>;
}

export const decodeRequest = <Name extends CallName>(name: Name, payload: Buffer): Request<Name> =>
  decode(CALLS[name].request, payload) as Request<Name>;

/** The bytes of the values; absent ones are zeros. */
export function encode<L extends Layout>(layout: L, values: Values<L>): Buffer {
  const parts: Buffer[] = [];
  write(parts, layout, values as Record<string, unknown>);
  return Buffer.concat(parts);
}

function write(parts: Buffer[], layout: Layout, values: Record<string, unknown>): void {
  for (const [name, field] of Object.entries(layout)) writeField(parts, field, values[name]);
}

function writeField(parts: Buffer[], field: Field, value: unknown): void {
  if (typeof field === 'object' && !isList(field))
    write(parts, field, (value ?? {}) as Record<string, unknown>);
  else writeLeaf(parts, field, value);
}

function writeLeaf(parts: Buffer[], field: Exclude<Field, Layout>, value: unknown): void {
  const bytes = Buffer.alloc(sizeOf(field));
  parts.push(bytes);
  if (field === 'u64') bytes.writeBigUInt64LE(BigInt.asUintN(64, (value ?? 0n) as bigint));
  else if (field === 'u32') bytes.writeUInt32LE(((value ?? 0) as number) >>> 0);
  else if (typeof field === 'number') bytes.set((value ?? []) as Uint8Array);
  else writeList(parts, bytes, field, (value ?? []) as Uint8Array | readonly unknown[]);
}

function writeList(
  parts: Buffer[],
  count: Buffer,
  [element]: Extract<Field, readonly unknown[]>,
  list: Uint8Array | readonly unknown[],
): void {
  count.writeUInt32LE(list.length);
  if (element === 'u8') parts.push(Buffer.from(list as Uint8Array));
  else for (const one of list) writeField(parts, element, one);
}

/** A message, with its header: `code` is the errno of a reply, the number of a request. */
export function message(code: number, payload: Uint8Array = new Uint8Array(0)): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32LE(payload.length, 0);
  header.writeUInt32LE(code, 4);
  return Buffer.concat([header, payload]);
}

/** The reply to a call that has succeeded. */
export const replyTo = <Name extends CallName>(name: Name, values: Reply<Name>): Buffer =>
  message(0, encode(CALLS[name].reply, values as Values<(typeof CALLS)[Name]['reply']>));

/** The reply to one that has not. The reason is for who asks for it (ROCE_DEBUG). */
export const refusal = ({ errno, message: reason }: Failed): Buffer => message(errno, Buffer.from(reason));
