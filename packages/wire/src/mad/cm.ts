/** Messages of the connection manager: bytes of a MAD to plain values, and back. */
import { CM_LAYOUTS, CmAttribute, type CmName } from './cm-layouts.ts';
import { type Layout, readFields, type ValuesOf, writeFields } from './field.ts';
import {
  CM_CLASS,
  CM_CLASS_VERSION,
  decodeMadHeader,
  encodeMadHeader,
  MAD_BYTES,
  MAD_HEADER_BYTES,
  MadHeader,
  MadMethod,
} from './mad.ts';

/** The members of the MAD header that differ between messages. */
export interface CmEnvelope {
  transactionId: bigint;
  /** Not 0 with enhanced connection establishment only. */
  attributeModifier: number;
}

export type CmFields<N extends CmName> = ValuesOf<(typeof CM_LAYOUTS)[N]>;

/** A message by its name, with all its fields. */
export type CmMessage<N extends CmName = CmName> = { [K in N]: { name: K } & CmEnvelope & CmFields<K> }[N];

/** A message to encode; absent fields are 0. */
export type CmInput<N extends CmName = CmName> = {
  [K in N]: { name: K } & Partial<CmEnvelope> & Partial<CmFields<K>>;
}[N];

export type CmParseResult =
  | { ok: true; message: CmMessage }
  | { ok: false; reason: 'truncated' | 'not-cm' | 'unsupported-version' | 'unknown-attribute' };

const NAMES = new Map<number, CmName>(
  (Object.entries(CmAttribute) as [CmName, number][]).map(([name, attribute]) => [attribute, name]),
);

/**
 * The name of the message at `o`, or undefined if it does not belong to the connection manager. Needs the MAD header only: for
 * captures that are cut.
 */
export function cmNameAt(b: Uint8Array, o: number): CmName | undefined {
  if (o + MAD_HEADER_BYTES > b.length || MadHeader.managementClass.get(b, o) !== CM_CLASS) return undefined;
  return NAMES.get(MadHeader.attributeId.get(b, o));
}

/** Fields of the message at `o`, whose name is known; bytes that are missing read as 0. */
export const cmFieldsAt = <N extends CmName>(name: N, b: Uint8Array, o: number): CmFields<N> =>
  readFields(CM_LAYOUTS[name] as Layout, b, o + MAD_HEADER_BYTES) as CmFields<N>;

/** Parses a MAD of 256 bytes at `o`. */
export function decodeCm(b: Uint8Array, o = 0): CmParseResult {
  if (o + MAD_BYTES > b.length) return { ok: false, reason: 'truncated' };
  const header = decodeMadHeader(b, o);
  if (header.managementClass !== CM_CLASS) return { ok: false, reason: 'not-cm' };
  if (header.baseVersion !== 1 || header.classVersion !== CM_CLASS_VERSION)
    return { ok: false, reason: 'unsupported-version' };
  const name = cmNameAt(b, o);
  if (name === undefined || header.method !== MadMethod.SEND)
    return { ok: false, reason: 'unknown-attribute' };
  const { transactionId, attributeModifier } = header;
  const message = { name, transactionId, attributeModifier, ...cmFieldsAt(name, b, o) } as CmMessage;
  return { ok: true, message };
}

/**
 * The 256 bytes of a message.
 * @throws RangeError for a value that does not fit its field
 * @throws TypeError for a field that the message does not have
 */
export function encodeCm(message: CmInput): Uint8Array<ArrayBuffer> {
  const { name, transactionId = 0n, attributeModifier = 0, ...fields } = message;
  const bytes = new Uint8Array(MAD_BYTES);
  encodeMadHeader(bytes, 0, {
    baseVersion: 1,
    managementClass: CM_CLASS,
    classVersion: CM_CLASS_VERSION,
    method: MadMethod.SEND,
    transactionId,
    attributeId: CmAttribute[name],
    attributeModifier,
  });
  writeFields(CM_LAYOUTS[name] as Layout, bytes, MAD_HEADER_BYTES, fields as Record<string, unknown>, name);
  return bytes;
}
