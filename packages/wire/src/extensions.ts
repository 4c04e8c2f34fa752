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

/** Writes the header `name`, which `checkExtensions` has found there. */
export function encodeExtension<K extends ExtensionName>(
  from: Extensions,
  name: K,
  b: Uint8Array,
  o: number,
): void {
  codecs[name].encode(b, o, from[name] as Value<K>);
}

/** @throws TypeError unless the values are of just the headers that the opcode has */
export function checkExtensions(extensions: Extensions, info: OpcodeInfo): void {
  for (const name of Object.keys(codecs) as ExtensionName[]) {
    const wanted = info.offsets[name] >= 0;
    if (wanted !== (extensions[name] !== undefined)) {
      throw new TypeError(`${info.name} ${wanted ? 'needs' : 'has no'} extension header ${name}`);
    }
  }
}
