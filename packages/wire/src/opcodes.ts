/**
 * The opcode table: one row per BTH opcode, from which packets are parsed, built, described and tested.
 *
 * An opcode is three bits of transport and five of operation (IBTA vol 1 §9.2, tables 35 and 38; XRC:
 * annex A14; CNP: annex A17 (RoCEv2); FLUSH and ATOMIC WRITE: annex A19). Rows are made from the two
 * lists below when the module loads and are looked up by the opcode's byte.
 */

/** The high three bits of an opcode. CNP has the one opcode 0x81. */
export const Transport = { RC: 0x00, UC: 0x20, RD: 0x40, UD: 0x60, CNP: 0x80, XRC: 0xa0 } as const;
export type TransportName = keyof typeof Transport;

/** The low five bits of an opcode. */
export const OperationBits = {
  SEND_FIRST: 0x00,
  SEND_MIDDLE: 0x01,
  SEND_LAST: 0x02,
  SEND_LAST_WITH_IMMEDIATE: 0x03,
  SEND_ONLY: 0x04,
  SEND_ONLY_WITH_IMMEDIATE: 0x05,
  RDMA_WRITE_FIRST: 0x06,
  RDMA_WRITE_MIDDLE: 0x07,
  RDMA_WRITE_LAST: 0x08,
  RDMA_WRITE_LAST_WITH_IMMEDIATE: 0x09,
  RDMA_WRITE_ONLY: 0x0a,
  RDMA_WRITE_ONLY_WITH_IMMEDIATE: 0x0b,
  RDMA_READ_REQUEST: 0x0c,
  RDMA_READ_RESPONSE_FIRST: 0x0d,
  RDMA_READ_RESPONSE_MIDDLE: 0x0e,
  RDMA_READ_RESPONSE_LAST: 0x0f,
  RDMA_READ_RESPONSE_ONLY: 0x10,
  ACKNOWLEDGE: 0x11,
  ATOMIC_ACKNOWLEDGE: 0x12,
  COMPARE_SWAP: 0x13,
  FETCH_ADD: 0x14,
  RESYNC: 0x15,
  SEND_LAST_WITH_INVALIDATE: 0x16,
  SEND_ONLY_WITH_INVALIDATE: 0x17,
  FLUSH: 0x1c,
  ATOMIC_WRITE: 0x1d,
} as const;
export type OperationName = keyof typeof OperationBits;

/** Extension headers, each with its length in bytes (IBTA vol 1 §9.3; CNP's 16 reserved bytes: A17.9.3). */
export const EXTENSION_BYTES = {
  rdeth: 4,
  deth: 8,
  xrceth: 4,
  feth: 4,
  reth: 16,
  atomicEth: 28,
  aeth: 4,
  atomicAckEth: 8,
  immDt: 4,
  ieth: 4,
  cnp: 16,
} as const;
export type ExtensionName = keyof typeof EXTENSION_BYTES;

/** One row of the table. All fields are of the same kind in every row: good on a hot path. */
export interface OpcodeInfo {
  /** The whole byte. */
  readonly opcode: number;
  /**
   * `RC RDMA Write First`: what Wireshark 4.0 shows in its Info column for RC, UC and UD. It has no such
   * names for RD, XRC, FLUSH, ATOMIC WRITE and the CNP; theirs here are made in the same way.
   */
  readonly name: string;
  /**
   * `RC RDMA WRITE First`: what Wireshark 4.0 calls the value of the field `infiniband.bth.opcode`; newer
   * opcodes are named likewise.
   */
  readonly fieldName: string;
  /** The key in `Opcode`, `RC_RDMA_WRITE_FIRST`. */
  readonly key: OpcodeName;
  /** One of `Transport`. */
  readonly transport: number;
  readonly transportName: TransportName;
  /** One of `OperationBits`; 1 for the CNP. */
  readonly operation: number;
  /** Bytes from the BTH through the last extension header. */
  readonly headerLength: number;
  /** Offset of each extension header from the start of the BTH, −1 where there is none. */
  readonly offsets: Readonly<Record<ExtensionName, number>>;
  /** The extension headers in the order of the wire. */
  readonly extensions: readonly ExtensionName[];
  /** Payload may follow the headers (of length 0 too). Otherwise the ICRC does. */
  readonly hasPayload: boolean;
  /** Begins a message: FIRST, ONLY and every operation of one packet. */
  readonly first: boolean;
  /** Ends a message: LAST, ONLY and every operation of one packet. */
  readonly last: boolean;
  /** Sent by a requester (the CNP is neither request nor response). */
  readonly isRequest: boolean;
  /** Sent by a responder. */
  readonly isResponse: boolean;
  readonly isSend: boolean;
  readonly isWrite: boolean;
  readonly isReadRequest: boolean;
  readonly isReadResponse: boolean;
  /** COMPARE SWAP or FETCH ADD. */
  readonly isAtomic: boolean;
  /** Annex A19. */
  readonly isFlush: boolean;
  readonly isAtomicWrite: boolean;
  readonly hasImmediate: boolean;
  readonly hasInvalidate: boolean;
}

interface Operation {
  readonly key: OperationName;
  readonly name: string;
  readonly fieldName: string;
  readonly headers: readonly ExtensionName[];
  /** p: payload, f: begins a message, l: ends one, r: response. */
  readonly flags: string;
}

// The headers are those that come after a transport's own (RDETH, DETH, XRCETH).
const operations: readonly Operation[] = [
  { key: 'SEND_FIRST', name: 'Send First', fieldName: 'SEND First', headers: [], flags: 'pf' },
  { key: 'SEND_MIDDLE', name: 'Send Middle', fieldName: 'SEND Middle', headers: [], flags: 'p' },
  { key: 'SEND_LAST', name: 'Send Last', fieldName: 'SEND Last', headers: [], flags: 'pl' },
  {
    key: 'SEND_LAST_WITH_IMMEDIATE',
    name: 'Send Last Immediate',
    fieldName: 'SEND Last with Immediate',
    headers: ['immDt'],
    flags: 'pl',
  },
  { key: 'SEND_ONLY', name: 'Send Only', fieldName: 'SEND Only', headers: [], flags: 'pfl' },
  {
    key: 'SEND_ONLY_WITH_IMMEDIATE',
    name: 'Send Only Immediate',
    fieldName: 'SEND Only with Immediate',
    headers: ['immDt'],
    flags: 'pfl',
  },
  {
    key: 'RDMA_WRITE_FIRST',
    name: 'RDMA Write First',
    fieldName: 'RDMA WRITE First',
    headers: ['reth'],
    flags: 'pf',
  },
  {
    key: 'RDMA_WRITE_MIDDLE',
    name: 'RDMA Write Middle',
    fieldName: 'RDMA WRITE Middle',
    headers: [],
    flags: 'p',
  },
  { key: 'RDMA_WRITE_LAST', name: 'RDMA Write Last', fieldName: 'RDMA WRITE Last', headers: [], flags: 'pl' },
  {
    key: 'RDMA_WRITE_LAST_WITH_IMMEDIATE',
    name: 'RDMA Write Last Immediate',
    fieldName: 'RDMA WRITE Last with Immediate',
    headers: ['immDt'],
    flags: 'pl',
  },
  {
    key: 'RDMA_WRITE_ONLY',
    name: 'RDMA Write Only',
    fieldName: 'RDMA WRITE Only',
    headers: ['reth'],
    flags: 'pfl',
  },
  {
    key: 'RDMA_WRITE_ONLY_WITH_IMMEDIATE',
    name: 'RDMA Write Only Immediate',
    fieldName: 'RDMA WRITE Only with Immediate',
    headers: ['reth', 'immDt'],
    flags: 'pfl',
  },
  {
    key: 'RDMA_READ_REQUEST',
    name: 'RDMA Read Request',
    fieldName: 'RDMA READ Request',
    headers: ['reth'],
    flags: 'fl',
  },
  {
    key: 'RDMA_READ_RESPONSE_FIRST',
    name: 'RDMA Read Response First',
    fieldName: 'RDMA READ response First',
    headers: ['aeth'],
    flags: 'pfr',
  },
  {
    key: 'RDMA_READ_RESPONSE_MIDDLE',
    name: 'RDMA Read Response Middle',
    fieldName: 'RDMA READ response Middle',
    headers: [],
    flags: 'pr',
  },
  {
    key: 'RDMA_READ_RESPONSE_LAST',
    name: 'RDMA Read Response Last',
    fieldName: 'RDMA READ response Last',
    headers: ['aeth'],
    flags: 'plr',
  },
  {
    key: 'RDMA_READ_RESPONSE_ONLY',
    name: 'RDMA Read Response Only',
    fieldName: 'RDMA READ response Only',
    headers: ['aeth'],
    flags: 'pflr',
  },
  { key: 'ACKNOWLEDGE', name: 'Acknowledge', fieldName: 'Acknowledge', headers: ['aeth'], flags: 'flr' },
  {
    key: 'ATOMIC_ACKNOWLEDGE',
    name: 'Atomic Acknowledge',
    fieldName: 'ATOMIC Acknowledge',
    headers: ['aeth', 'atomicAckEth'],
    flags: 'flr',
  },
  { key: 'COMPARE_SWAP', name: 'Compare Swap', fieldName: 'CmpSwap', headers: ['atomicEth'], flags: 'fl' },
  { key: 'FETCH_ADD', name: 'Fetch Add', fieldName: 'FetchAdd', headers: ['atomicEth'], flags: 'fl' },
  { key: 'RESYNC', name: 'Resync', fieldName: 'RESYNC', headers: [], flags: 'fl' },
  {
    key: 'SEND_LAST_WITH_INVALIDATE',
    name: 'Send Last Invalidate',
    fieldName: 'SEND Last with Invalidate',
    headers: ['ieth'],
    flags: 'pl',
  },
  {
    key: 'SEND_ONLY_WITH_INVALIDATE',
    name: 'Send Only Invalidate',
    fieldName: 'SEND Only with Invalidate',
    headers: ['ieth'],
    flags: 'pfl',
  },
  { key: 'FLUSH', name: 'Flush', fieldName: 'FLUSH', headers: ['feth', 'reth'], flags: 'fl' },
  { key: 'ATOMIC_WRITE', name: 'Atomic Write', fieldName: 'ATOMIC WRITE', headers: ['reth'], flags: 'pfl' },
];

const isUdOperation = (bits: number) =>
  bits === OperationBits.SEND_ONLY || bits === OperationBits.SEND_ONLY_WITH_IMMEDIATE;

// Which operations each transport has, and the headers it puts before the operation's.
const transports = [
  { name: 'RC', has: (bits: number) => bits !== OperationBits.RESYNC, request: [], response: [] },
  {
    name: 'UC',
    has: (bits: number) => bits <= OperationBits.RDMA_WRITE_ONLY_WITH_IMMEDIATE,
    request: [],
    response: [],
  },
  {
    name: 'RD',
    has: (bits: number) => bits <= OperationBits.RESYNC || bits === OperationBits.FLUSH,
    request: ['rdeth', 'deth'],
    response: ['rdeth'],
  },
  { name: 'UD', has: isUdOperation, request: ['deth'], response: [] },
  {
    name: 'XRC',
    has: (bits: number) => bits !== OperationBits.RESYNC,
    request: ['xrceth'],
    response: [],
  },
] as const;

type UcOperation = Exclude<
  Extract<OperationName, `SEND_${string}` | `RDMA_WRITE_${string}`>,
  `${string}_INVALIDATE`
>;
type RdOperation = Exclude<OperationName, `${string}_INVALIDATE` | 'ATOMIC_WRITE'>;

/** The keys of `Opcode`. */
export type OpcodeName =
  | `RC_${Exclude<OperationName, 'RESYNC'>}`
  | `XRC_${Exclude<OperationName, 'RESYNC'>}`
  | `UC_${UcOperation}`
  | `RD_${RdOperation}`
  | 'UD_SEND_ONLY'
  | 'UD_SEND_ONLY_WITH_IMMEDIATE'
  | 'CNP';

function makeRow(
  transportName: TransportName,
  operation: number,
  key: string,
  name: string,
  fieldName: string,
  extensions: readonly ExtensionName[],
  flags: string,
): OpcodeInfo {
  const offsets: Record<ExtensionName, number> = {
    rdeth: -1,
    deth: -1,
    xrceth: -1,
    feth: -1,
    reth: -1,
    atomicEth: -1,
    aeth: -1,
    atomicAckEth: -1,
    immDt: -1,
    ieth: -1,
    cnp: -1,
  };
  let headerLength = 12;
  for (const extension of extensions) {
    offsets[extension] = headerLength;
    headerLength += EXTENSION_BYTES[extension];
  }
  return {
    opcode: Transport[transportName] | operation,
    name,
    fieldName,
    key: key as OpcodeName,
    transport: Transport[transportName],
    transportName,
    operation,
    headerLength,
    offsets,
    extensions,
    hasPayload: flags.includes('p'),
    first: flags.includes('f'),
    last: flags.includes('l'),
    isRequest: transportName !== 'CNP' && !flags.includes('r'),
    isResponse: flags.includes('r'),
    isSend: key.includes('_SEND_'),
    isWrite: key.includes('_RDMA_WRITE_'),
    isReadRequest: key.endsWith('_RDMA_READ_REQUEST'),
    isReadResponse: key.includes('_RDMA_READ_RESPONSE_'),
    isAtomic: offsets.atomicEth >= 0,
    isFlush: offsets.feth >= 0,
    isAtomicWrite: key.endsWith('_ATOMIC_WRITE'),
    hasImmediate: offsets.immDt >= 0,
    hasInvalidate: offsets.ieth >= 0,
  };
}

const rows: OpcodeInfo[] = [];
for (const transport of transports) {
  for (const { key, name, fieldName, headers, flags } of operations) {
    const bits = OperationBits[key];
    if (!transport.has(bits)) continue;
    const before = flags.includes('r') ? transport.response : transport.request;
    rows.push(
      makeRow(
        transport.name,
        bits,
        `${transport.name}_${key}`,
        `${transport.name} ${name}`,
        // The two rows of UD have a small letter there.
        `${transport.name} ${transport.name === 'UD' ? fieldName.replace('Only', 'only') : fieldName}`,
        [...before, ...headers],
        flags,
      ),
    );
  }
}
rows.push(makeRow('CNP', 1, 'CNP', 'CNP', 'CNP', ['cnp'], 'fl'));

/** Every row, ascending by opcode. */
export const OPCODES: readonly OpcodeInfo[] = rows.sort((a, b) => a.opcode - b.opcode);

/** Whole-byte opcodes by name, `Opcode.RC_SEND_ONLY` = 0x04. */
export const Opcode = Object.fromEntries(OPCODES.map((row) => [row.key, row.opcode])) as Readonly<
  Record<OpcodeName, number>
>;

const byByte: (OpcodeInfo | undefined)[] = Array.from({ length: 256 }, () => undefined);
for (const row of OPCODES) byByte[row.opcode] = row;

/** The row of an opcode byte, `undefined` where the byte is no opcode. */
export function opcodeInfo(opcode: number): OpcodeInfo | undefined {
  return byByte[opcode];
}
