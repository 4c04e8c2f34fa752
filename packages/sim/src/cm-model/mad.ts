/** CM messages to bytes and back: MADs of 256 bytes, one bit after the other. */
import { ATTRIBUTES, type CmFields, type CmName, type Field, LAYOUTS } from './layouts.ts';

const MAD_BYTES = 256;
/** The common header; the message follows (IBTA vol 1 §13.4.2). */
const HEADER_BYTES = 24;
const BASE_VERSION = 1;
const CLASS_COMMUNICATION = 7;
const CLASS_VERSION = 2;
/** Every CM message is a Send, answers too (IBTA vol 1 §16.7.2). */
const METHOD_SEND = 3;

/** A message, discriminated by its name. */
export type CmMessage = { [N in CmName]: { name: N; tid: bigint } & CmFields<N> }[CmName];
export type CmMessageOf<N extends CmName> = Extract<CmMessage, { name: N }>;

function readBits(mad: Uint8Array, field: Field<unknown>): bigint {
  let value = 0n;
  const first = (HEADER_BYTES + field.byte) * 8 + field.bit;
  for (let bit = first; bit < first + field.width; bit++) {
    value = (value << 1n) | BigInt((mad[bit >> 3] >> (7 - (bit & 7))) & 1);
  }
  return value;
}

function writeBits(mad: Uint8Array, field: Field<unknown>, value: bigint): void {
  if (value < 0n || value >> BigInt(field.width)) throw new RangeError(`${value} in ${field.width} bits`);
  const last = (HEADER_BYTES + field.byte) * 8 + field.bit + field.width - 1;
  let rest = value;
  for (let bit = last; rest > 0n; bit--, rest >>= 1n) {
    if (rest & 1n) mad[bit >> 3] |= 0x80 >> (bit & 7);
  }
}

/** Encodes a message; fields left out are zero. @throws RangeError if a value does not fit its field */
export function encodeCm<N extends CmName>(name: N, tid: bigint, fields: Partial<CmFields<N>>): Uint8Array {
  const mad = new Uint8Array(MAD_BYTES);
  mad.set([BASE_VERSION, CLASS_COMMUNICATION, CLASS_VERSION, METHOD_SEND]);
  const view = new DataView(mad.buffer);
  view.setBigUint64(8, tid);
  view.setUint16(16, ATTRIBUTES[name]);
  const layout = LAYOUTS[name] as Record<string, Field<unknown>>;
  for (const [key, value] of Object.entries(fields)) {
    const field = layout[key];
    if (field === undefined) throw new RangeError(`${name} has no field ${key}`);
    if (value instanceof Uint8Array) {
      if (value.length * 8 > field.width)
        throw new RangeError(`${value.length} bytes are too long for ${key}`);
      mad.set(value, HEADER_BYTES + field.byte);
    } else {
      writeBits(mad, field, BigInt(value as number | bigint));
    }
  }
  return mad;
}

/** Decodes a MAD. Never throws: returns the reason why bytes are no CM message. */
export function decodeCm(mad: Uint8Array): CmMessage | string {
  if (mad.length !== MAD_BYTES) return `${mad.length} bytes are no MAD`;
  const view = new DataView(mad.buffer, mad.byteOffset, mad.byteLength);
  const [base, mgmtClass, version, method] = mad;
  if (base !== BASE_VERSION) return `base version ${base}`;
  if (mgmtClass !== CLASS_COMMUNICATION) return `management class ${mgmtClass}`;
  if (version !== CLASS_VERSION) return `class version ${version}`;
  if (method !== METHOD_SEND) return `method ${method}`;
  const attribute = view.getUint16(16);
  const name = (Object.keys(ATTRIBUTES) as CmName[]).find((key) => ATTRIBUTES[key] === attribute);
  if (name === undefined) return `attribute 0x${attribute.toString(16)}`;
  const message: Record<string, unknown> = { name, tid: view.getBigUint64(8) };
  for (const [key, field] of Object.entries(LAYOUTS[name] as Record<string, Field<unknown>>)) {
    const from = HEADER_BYTES + field.byte;
    if (field.kind === 'bytes') message[key] = mad.slice(from, from + field.width / 8);
    else if (field.kind === 'bigint') message[key] = readBits(mad, field);
    else message[key] = Number(readBits(mad, field));
  }
  return message as CmMessage;
}
