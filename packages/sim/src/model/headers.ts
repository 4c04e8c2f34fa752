/**
 * The headers of packets by tables of the model's own (IBTA vol 1 §9.2, §9.3; XRCETH: annex A14; FETH: annex A19): which an opcode has,
 * and their fields bit by bit. A wrong offset of `packages/wire`, which the engine uses, is not the model's too.
 */

/** The first bit of a field, counted from the header's first, and its bits. */
type Field = readonly [from: number, bits: number];

/** §9.2, in place of reserved bits: nothing. */
const BTH = {
  opcode: [0, 8],
  solicited: [8, 1],
  migReq: [9, 1],
  pad: [10, 2],
  version: [12, 4],
  pkey: [16, 16],
  destQpn: [40, 24],
  ackReq: [64, 1],
  psn: [72, 24],
} as const;

/** Extension headers: bytes and fields. */
const EXTENSIONS = {
  deth: { bytes: 8, fields: { qkey: [0, 32], srcQpn: [40, 24] } },
  xrceth: { bytes: 4, fields: { srqn: [8, 24] } },
  feth: { bytes: 4, fields: { selectivity: [26, 2], placement: [28, 4] } },
  reth: { bytes: 16, fields: { va: [0, 64], rkey: [64, 32], length: [96, 32] } },
  atomicEth: {
    bytes: 28,
    fields: { va: [0, 64], rkey: [64, 32], swapAdd: [96, 64], compare: [160, 64] },
  },
  aeth: { bytes: 4, fields: { syndrome: [0, 8], msn: [8, 24] } },
  atomicAckEth: { bytes: 8, fields: { original: [0, 64] } },
  immDt: { bytes: 4, fields: { immediate: [0, 32] } },
  ieth: { bytes: 4, fields: { rkey: [0, 32] } },
} as const;
type Extension = keyof typeof EXTENSIONS;

const NONE: readonly Extension[] = [];
/** Table 35, by the low five bits of the opcode; operations without a row have no extension headers. */
const OPERATIONS: Readonly<Record<number, readonly Extension[]>> = {
  3: ['immDt'], // SEND LAST with immediate
  5: ['immDt'], // SEND ONLY with immediate
  6: ['reth'], // WRITE FIRST
  9: ['immDt'], // WRITE LAST with immediate
  10: ['reth'], // WRITE ONLY
  11: ['reth', 'immDt'], // WRITE ONLY with immediate
  12: ['reth'], // READ request
  13: ['aeth'], // READ response FIRST
  15: ['aeth'], // READ response LAST
  16: ['aeth'], // READ response ONLY
  17: ['aeth'], // ACK
  18: ['aeth', 'atomicAckEth'], // ATOMIC ACK
  19: ['atomicEth'], // COMPARE SWAP
  20: ['atomicEth'], // FETCH ADD
  22: ['ieth'], // SEND LAST with invalidate
  23: ['ieth'], // SEND ONLY with invalidate
  28: ['feth', 'reth'], // FLUSH
  29: ['reth'], // ATOMIC WRITE
};
const UD = 3;
const XRC = 5;
/** READ responses, ACK and ATOMIC ACK: of XRC, these have no XRCETH. */
const isAnswer = (operation: number): boolean => operation >= 0x0d && operation <= 0x12;

/** Bytes of the BTH. */
export const BTH_LENGTH = 12;

/** Where the extension headers of an opcode begin, and where the payload does. */
export function placesOf(opcode: number): { at: { [E in Extension]?: number }; length: number } {
  const [transport, operation] = [opcode >> 5, opcode & 0x1f];
  const own: readonly Extension[] =
    transport === UD ? ['deth'] : transport === XRC && !isAnswer(operation) ? ['xrceth'] : NONE;
  const at: { [E in Extension]?: number } = {};
  let length = BTH_LENGTH;
  for (const name of [...own, ...(OPERATIONS[operation] ?? NONE)]) {
    at[name] = length;
    length += EXTENSIONS[name].bytes;
  }
  return { at, length };
}

function bitsAt(bytes: Uint8Array, from: number, bits: number): number {
  let value = 0;
  for (let bit = from; bit < from + bits; bit++)
    value = value * 2 + ((bytes[bit >> 3] >> (7 - (bit & 7))) & 1);
  return value;
}

function setBits(bytes: Uint8Array, from: number, bits: number, value: number): void {
  let rest = value;
  for (let bit = from + bits - 1; bit >= from; bit--) {
    bytes[bit >> 3] |= (rest % 2) << (7 - (bit & 7));
    rest = Math.floor(rest / 2);
  }
}

/** Fields of more than 32 bits are bigints. */
type ValueOf<F extends Field> = F[1] extends 64 ? bigint : number;
type Values<L extends Readonly<Record<string, Field>>> = { -readonly [N in keyof L]: ValueOf<L[N]> };

function read<L extends Readonly<Record<string, Field>>>(
  bytes: Uint8Array,
  at: number,
  layout: L,
): Values<L> {
  const fieldAt = ([first, bits]: Field) => {
    const from = at * 8 + first;
    if (bits <= 32) return bitsAt(bytes, from, bits);
    return (BigInt(bitsAt(bytes, from, 32)) << 32n) | BigInt(bitsAt(bytes, from + 32, 32));
  };
  return Object.fromEntries(
    Object.entries(layout).map(([name, field]) => [name, fieldAt(field)]),
  ) as Values<L>;
}

/** The bytes are zero before. */
function write<L extends Readonly<Record<string, Field>>>(
  bytes: Uint8Array,
  at: number,
  layout: L,
  values: Values<L>,
): void {
  for (const [name, [first, bits]] of Object.entries(layout)) {
    const value = values[name];
    const from = at * 8 + first;
    if (typeof value === 'bigint') {
      setBits(bytes, from, 32, Number((value >> 32n) & 0xffff_ffffn));
      setBits(bytes, from + 32, 32, Number(value & 0xffff_ffffn));
    } else setBits(bytes, from, bits, value);
  }
}

type BthFields = Values<typeof BTH>;
type ExtensionFields<E extends Extension> = Values<(typeof EXTENSIONS)[E]['fields']>;

export const readBth = (bytes: Uint8Array): BthFields => read(bytes, 0, BTH);
export const putBth = (bytes: Uint8Array, values: BthFields): void => write(bytes, 0, BTH, values);

export const readExtension = <E extends Extension>(
  bytes: Uint8Array,
  at: number,
  name: E,
): ExtensionFields<E> => read(bytes, at, EXTENSIONS[name].fields) as unknown as ExtensionFields<E>;

export const putExtension = <E extends Extension>(
  bytes: Uint8Array,
  at: number,
  name: E,
  values: ExtensionFields<E>,
): void => write(bytes, at, EXTENSIONS[name].fields, values as never);
