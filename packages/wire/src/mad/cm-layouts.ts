/**
 * Layouts of the connection manager's messages (IBTA vol 1 §12.6 to §12.11, annex A11): one table per message, offsets
 * from the end of the MAD header. Timeouts are codes of 4.096 µs · 2^code.
 */
import { bitsOf, data, type Field, flag, gid, guid, type Layout, uint, word } from './field.ts';

/** A path, at offsets that REQ and LAP lay out differently. */
const path = <P extends string>(
  prefix: P,
  at: {
    lids: number;
    gids: number;
    label: number;
    trafficClass: number;
    hops: number;
    rate: number;
    sl: number;
  },
) => {
  const fields = {
    LocalLid: uint(at.lids, 16),
    RemoteLid: uint(at.lids + 2, 16),
    LocalGid: gid(at.gids),
    RemoteGid: gid(at.gids + 16),
    FlowLabel: uint(at.label, 20),
    /** Code of the packet rate; 0 is the port's. */
    PacketRate: bitsOf(at.rate, 5, 0),
    TrafficClass: uint(at.trafficClass, 8),
    HopLimit: uint(at.hops, 8),
    ServiceLevel: bitsOf(at.sl, 7, 4),
    SubnetLocal: flag(at.sl, 3),
    /** Local ACK timeout. */
    AckTimeout: bitsOf(at.sl + 1, 7, 3),
  };
  type Fields = typeof fields;
  return Object.fromEntries(Object.entries(fields).map(([name, field]) => [prefix + name, field])) as {
    [K in keyof Fields & string as `${P}${K}`]: Fields[K];
  };
};

const localCommId = uint(0, 32);
const remoteCommId = uint(4, 32);

/** Opens a connection (§12.6.5). */
const REQ = {
  localCommId,
  /** Enhanced connection establishment. */
  vendorId: uint(5, 24),
  serviceId: word(8),
  localCaGuid: guid(16),
  localQkey: uint(28, 32),
  localQpn: uint(32, 24),
  /** READs and atomics that the sender can serve at a time. */
  responderResources: uint(35, 8),
  localEecn: uint(36, 24),
  /** READs and atomics that the sender wants outstanding. */
  initiatorDepth: uint(39, 8),
  remoteEecn: uint(40, 24),
  remoteCmResponseTimeout: bitsOf(43, 7, 3),
  /** One of `CmTransport`. */
  transportService: bitsOf(43, 2, 1),
  endToEndFlowControl: flag(43, 0),
  /** The PSN that the sender expects to receive first. */
  startingPsn: uint(44, 24),
  localCmResponseTimeout: bitsOf(47, 7, 3),
  retryCount: bitsOf(47, 2, 0),
  pkey: uint(48, 16),
  /** `enum ibv_mtu`: 1 = 256 … 5 = 4096. */
  pathMtu: bitsOf(50, 7, 4),
  rdcExists: flag(50, 3),
  rnrRetryCount: bitsOf(50, 2, 0),
  maxCmRetries: bitsOf(51, 7, 4),
  srq: flag(51, 3),
  /** With `transportService` 3: 1 is XRC. */
  extendedTransport: bitsOf(51, 2, 0),
  ...path('primary', { lids: 52, gids: 56, label: 88, rate: 91, trafficClass: 92, hops: 93, sl: 94 }),
  /** The alternate path is absent where its LIDs are 0. */
  ...path('alternate', { lids: 96, gids: 100, label: 132, rate: 135, trafficClass: 136, hops: 137, sl: 138 }),
  sapSupported: flag(139, 2),
  privateData: data(140, 92),
} satisfies Record<string, Field<unknown>>;

/** Acknowledges a message whose answer takes longer (§12.6.6). */
const MRA = {
  localCommId,
  remoteCommId,
  /** One of `CmMraMessage`. */
  messageMraed: bitsOf(8, 7, 6),
  serviceTimeout: bitsOf(9, 7, 3),
  privateData: data(10, 222),
} satisfies Record<string, Field<unknown>>;

/** Refuses, or ends an attempt (§12.6.7). */
const REJ = {
  localCommId,
  remoteCommId,
  /** One of `CmRejMessage`. */
  messageRejected: bitsOf(8, 7, 6),
  /** Valid bytes of `additionalInfo`. */
  additionalInfoLength: bitsOf(9, 7, 1),
  /** One of `CmRejReason`. */
  reason: uint(10, 16),
  additionalInfo: data(12, 72),
  privateData: data(84, 148),
} satisfies Record<string, Field<unknown>>;

/** Accepts a REQ (§12.6.8). */
const REP = {
  localCommId,
  remoteCommId,
  localQkey: uint(8, 32),
  /** 0 with XRC. */
  localQpn: uint(12, 24),
  vendorIdHigh: uint(15, 8),
  /** With XRC, the queue pair number. */
  localEecn: uint(16, 24),
  vendorIdMiddle: uint(19, 8),
  /** The PSN that the sender expects to receive first. */
  startingPsn: uint(20, 24),
  vendorIdLow: uint(23, 8),
  responderResources: uint(24, 8),
  initiatorDepth: uint(25, 8),
  targetAckDelay: bitsOf(26, 7, 3),
  failoverAccepted: bitsOf(26, 2, 1),
  endToEndFlowControl: flag(26, 0),
  rnrRetryCount: bitsOf(27, 7, 5),
  srq: flag(27, 4),
  localCaGuid: guid(28),
  privateData: data(36, 196),
} satisfies Record<string, Field<unknown>>;

/** The connection is ready to use (§12.6.9). */
const RTU = { localCommId, remoteCommId, privateData: data(8, 224) } satisfies Layout;

/** Asks to release a connection (§12.6.10). */
const DREQ = {
  localCommId,
  remoteCommId,
  remoteQpn: uint(8, 24),
  privateData: data(12, 220),
} satisfies Record<string, Field<unknown>>;

/** Releases a connection (§12.6.11). */
const DREP = { localCommId, remoteCommId, privateData: data(8, 224) } satisfies Layout;

/** Asks for the queue pair of a datagram service (§12.11.1). */
const SIDR_REQ = {
  requestId: uint(0, 32),
  pkey: uint(4, 16),
  serviceId: word(8),
  privateData: data(16, 216),
} satisfies Record<string, Field<unknown>>;

/** Answers a SIDR_REQ (§12.11.2). */
const SIDR_REP = {
  requestId: uint(0, 32),
  /** One of `CmSidrStatus`. */
  status: uint(4, 8),
  /** Valid bytes of `additionalInfo`. */
  additionalInfoLength: uint(5, 8),
  vendorIdHigh: uint(6, 16),
  qpn: uint(8, 24),
  vendorIdLow: uint(11, 8),
  serviceId: word(12),
  qkey: uint(20, 32),
  additionalInfo: data(24, 72),
  privateData: data(96, 136),
} satisfies Record<string, Field<unknown>>;

/** Loads an alternate path (§12.8.1). */
const LAP = {
  localCommId,
  remoteCommId,
  remoteQpn: uint(12, 24),
  remoteCmResponseTimeout: bitsOf(15, 7, 3),
  ...path('alternate', { lids: 20, gids: 24, label: 56, trafficClass: 59, hops: 60, rate: 61, sl: 62 }),
  privateData: data(64, 168),
} satisfies Record<string, Field<unknown>>;

/** Answers a LAP (§12.8.2). */
const APR = {
  localCommId,
  remoteCommId,
  /** Valid bytes of `additionalInfo`. */
  additionalInfoLength: uint(8, 8),
  /** One of `CmAprStatus`. */
  status: uint(9, 8),
  additionalInfo: data(12, 72),
  privateData: data(84, 148),
} satisfies Record<string, Field<unknown>>;

export const CM_LAYOUTS = { REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR } as const;

/** `attributeId` in the MAD header (§12.6.2). */
export const CmAttribute = {
  REQ: 0x10,
  MRA: 0x11,
  REJ: 0x12,
  REP: 0x13,
  RTU: 0x14,
  DREQ: 0x15,
  DREP: 0x16,
  SIDR_REQ: 0x17,
  SIDR_REP: 0x18,
  LAP: 0x19,
  APR: 0x1a,
} as const;
export type CmName = keyof typeof CmAttribute;
