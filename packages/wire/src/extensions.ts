/** The extension headers of a packet as plain values, and the table by which they are read and written. */
import { checked } from './bytes.ts';
import { type AethValue, decodeAeth, encodeAeth } from './headers/aeth.ts';
import {
  type AtomicAckEthValue,
  type AtomicEthValue,
  decodeAtomicAck,
  decodeAtomicEth,
  encodeAtomicAck,
  encodeAtomicEth,
} from './headers/atomic.ts';
import {
  type DethValue,
  decodeDeth,
  decodeRdeth,
  decodeXrceth,
  encodeDeth,
  encodeRdeth,
  encodeXrceth,
  type RdethValue,
  type XrcethValue,
} from './headers/datagram.ts';
import { decodeReth, encodeReth, type RethValue } from './headers/reth.ts';
import {
  decodeFeth,
  encodeFeth,
  type FethValue,
  iethRkey,
  immDt,
  writeIeth,
  writeImmDt,
} from './headers/small.ts';
import { EXTENSION_BYTES, type ExtensionName, type OpcodeInfo } from './opcodes.ts';

/** Extension headers by the name that the opcode table has for them. */
export interface Extensions {
  rdeth?: RdethValue;
  deth?: DethValue;
  xrceth?: XrcethValue;
  feth?: FethValue;
  reth?: RethValue;
  atomicEth?: AtomicEthValue;
  aeth?: AethValue;
  atomicAckEth?: AtomicAckEthValue;
  /** Immediate data, in the order of the wire. */
  immDt?: number;
  /** The key to invalidate. */
  ieth?: number;
  /** The 16 reserved bytes of a CNP. */
  cnp?: Uint8Array;
}

type Value<K extends ExtensionName> = NonNullable<Extensions[K]>;

const codecs: {
  readonly [K in ExtensionName]: {
    readonly decode: (b: Uint8Array, o: number) => Value<K>;
    readonly encode: (b: Uint8Array, o: number, value: Value<K>) => void;
  };
} = {
  rdeth: { decode: decodeRdeth, encode: encodeRdeth },
  deth: { decode: decodeDeth, encode: encodeDeth },
  xrceth: { decode: decodeXrceth, encode: encodeXrceth },
  feth: { decode: decodeFeth, encode: encodeFeth },
  reth: { decode: decodeReth, encode: encodeReth },
  atomicEth: { decode: decodeAtomicEth, encode: encodeAtomicEth },
  aeth: { decode: decodeAeth, encode: encodeAeth },
  atomicAckEth: { decode: decodeAtomicAck, encode: encodeAtomicAck },
  immDt: { decode: immDt, encode: (b, o, value) => writeImmDt(b, o, checked('ImmDt', value, 32)) },
  ieth: { decode: iethRkey, encode: (b, o, value) => writeIeth(b, o, checked('IETH rkey', value, 32)) },
  cnp: {
    decode: (b, o) => b.slice(o, o + EXTENSION_BYTES.cnp),
    encode: (b, o, value) => {
      if (value.length !== EXTENSION_BYTES.cnp) throw new RangeError(`CNP of ${value.length} bytes: not 16`);
      b.set(value, o);
    },
  },
};

/** Reads the header `name` at `o` into `into`; the caller has checked that its bytes are there. */
export function decodeExtension<K extends ExtensionName>(
  into: Extensions,
  name: K,
  b: Uint8Array,
  o: number,
): void {
  into[name] = codecs[name].decode(b, o);
}

/** Writes the header `name`, which `from` has to have. */
export function encodeExtension<K extends ExtensionName>(
  from: Extensions,
  name: K,
  b: Uint8Array,
  o: number,
): void {
  codecs[name].encode(b, o, from[name] as Value<K>);
}

/** Values of the headers that `buildPacket` fills in: zeros, and for `length` the bytes of the payload. */
const defaultsOf = (payloadLength: number): Required<Extensions> => ({
  rdeth: { reserved: 0, eeContext: 0 },
  deth: { qkey: 0, reserved: 0, srcQp: 0 },
  xrceth: { reserved: 0, srq: 0 },
  feth: { placement: 0, selectivity: 0, reserved: 0 },
  reth: { va: 0n, rkey: 0, length: payloadLength },
  atomicEth: { va: 0n, rkey: 0, swapAdd: 0n, compare: 0n },
  aeth: { syndrome: 0, msn: 0 },
  atomicAckEth: { original: 0n },
  immDt: 0,
  ieth: 0,
  cnp: new Uint8Array(EXTENSION_BYTES.cnp),
});

/** Extension headers with fields left out. */
export type PartialExtensions = {
  [K in ExtensionName]?: Value<K> extends number | Uint8Array ? Value<K> : Partial<Value<K>>;
};

/**
 * All headers that the opcode has, with absent fields filled in.
 * @throws TypeError for a header that the opcode does not have
 */
export function completeExtensions(
  given: PartialExtensions,
  info: OpcodeInfo,
  payloadLength: number,
): Extensions {
  for (const name of Object.keys(given) as ExtensionName[]) {
    if (given[name] !== undefined && !(info.offsets[name] >= 0))
      throw new TypeError(`${info.name} has no extension header ${name}`);
  }
  const defaults = defaultsOf(payloadLength);
  return Object.fromEntries(info.extensions.map((name) => [name, merged(defaults[name], given[name])]));
}

const merged = (base: unknown, given: unknown): unknown =>
  given === undefined || typeof given !== 'object' || given instanceof Uint8Array
    ? (given ?? base)
    : { ...(base as object), ...defined(given as object) };

/** The members of an object that are not undefined. */
export const defined = <T extends object>(values: T): Partial<T> =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Partial<T>;
