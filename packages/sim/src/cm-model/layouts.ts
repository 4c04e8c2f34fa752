/**
 * Where each field of a CM message lies: bytes after the MAD's common header of 24 bytes (IBTA vol 1 §12.6).
 * Bits count from the most significant one of their byte.
 */

/** A field; `V` is the type of its value. */
export interface Field<V> {
  readonly byte: number;
  readonly bit: number;
  readonly width: number;
  readonly kind: 'number' | 'bigint' | 'bytes';
  /** Never set: it carries the type. */
  readonly value?: V;
}

/** Of up to 32 bits. */
const bits = (byte: number, width: number, bit = 0): Field<number> => ({ byte, bit, width, kind: 'number' });
/** Of 64 bits. */
const long = (byte: number): Field<bigint> => ({ byte, bit: 0, width: 64, kind: 'bigint' });
const bytes = (byte: number, length: number): Field<Uint8Array> => ({
  byte,
  bit: 0,
  width: length * 8,
  kind: 'bytes',
});

const ids = { localId: bits(0, 32), remoteId: bits(4, 32) };

/** Layouts by the name of the message. */
export const LAYOUTS = {
  REQ: {
    localId: bits(0, 32),
    serviceId: long(8),
    caGuid: long(16),
    qkey: bits(28, 32),
    qpn: bits(32, 24),
    responderResources: bits(35, 8),
    eecn: bits(36, 24),
    initiatorDepth: bits(39, 8),
    remoteEecn: bits(40, 24),
    /** How long the receiver of the REQ may take to answer: exponent. */
    remoteResponseTimeout: bits(43, 5),
    transportService: bits(43, 2, 5),
    flowControl: bits(43, 1, 7),
    /** The first PSN that the sender expects to receive. */
    startingPsn: bits(44, 24),
    /** How long the sender of the REQ may take to answer: exponent. */
    localResponseTimeout: bits(47, 5),
    retryCount: bits(47, 3, 5),
    pkey: bits(48, 16),
    pathMtu: bits(50, 4),
    rdcExists: bits(50, 1, 4),
    rnrRetryCount: bits(50, 3, 5),
    maxCmRetries: bits(51, 4),
    srq: bits(51, 1, 4),
    extendedTransport: bits(51, 3, 5),
    primaryLocalLid: bits(52, 16),
    primaryRemoteLid: bits(54, 16),
    primaryLocalGid: bytes(56, 16),
    primaryRemoteGid: bytes(72, 16),
    primaryFlowLabel: bits(88, 20),
    primaryRate: bits(91, 6, 2),
    primaryTrafficClass: bits(92, 8),
    primaryHopLimit: bits(93, 8),
    primarySl: bits(94, 4),
    primarySubnetLocal: bits(94, 1, 4),
    primaryAckTimeout: bits(95, 5),
    alternateLocalLid: bits(96, 16),
    alternateRemoteLid: bits(98, 16),
    alternateLocalGid: bytes(100, 16),
    alternateRemoteGid: bytes(116, 16),
    alternateFlowLabel: bits(132, 20),
    alternateRate: bits(135, 6, 2),
    alternateTrafficClass: bits(136, 8),
    alternateHopLimit: bits(137, 8),
    alternateSl: bits(138, 4),
    alternateSubnetLocal: bits(138, 1, 4),
    alternateAckTimeout: bits(139, 5),
    privateData: bytes(140, 92),
  },
  MRA: { ...ids, mraed: bits(8, 2), serviceTimeout: bits(9, 5), privateData: bytes(10, 222) },
  REJ: {
    ...ids,
    rejected: bits(8, 2),
    ariLength: bits(9, 7),
    reason: bits(10, 16),
    ari: bytes(12, 72),
    privateData: bytes(84, 148),
  },
  REP: {
    ...ids,
    qkey: bits(8, 32),
    qpn: bits(12, 24),
    eecn: bits(16, 24),
    startingPsn: bits(20, 24),
    responderResources: bits(24, 8),
    initiatorDepth: bits(25, 8),
    targetAckDelay: bits(26, 5),
    failover: bits(26, 2, 5),
    flowControl: bits(26, 1, 7),
    rnrRetryCount: bits(27, 3),
    srq: bits(27, 1, 3),
    caGuid: long(28),
    privateData: bytes(36, 196),
  },
  RTU: { ...ids, privateData: bytes(8, 224) },
  DREQ: { ...ids, qpn: bits(8, 24), privateData: bytes(12, 220) },
  DREP: { ...ids, privateData: bytes(8, 224) },
  SIDR_REQ: { requestId: bits(0, 32), pkey: bits(4, 16), serviceId: long(8), privateData: bytes(16, 216) },
  SIDR_REP: {
    requestId: bits(0, 32),
    status: bits(4, 8),
    infoLength: bits(5, 8),
    qpn: bits(8, 24),
    serviceId: long(12),
    qkey: bits(20, 32),
    info: bytes(24, 72),
    privateData: bytes(96, 136),
  },
  LAP: {
    ...ids,
    qpn: bits(12, 24),
    remoteResponseTimeout: bits(15, 5),
    alternateLocalLid: bits(20, 16),
    alternateRemoteLid: bits(22, 16),
    alternateLocalGid: bytes(24, 16),
    alternateRemoteGid: bytes(40, 16),
    flowLabel: bits(56, 20),
    trafficClass: bits(59, 8),
    hopLimit: bits(60, 8),
    rate: bits(61, 6, 2),
    sl: bits(62, 4),
    subnetLocal: bits(62, 1, 4),
    ackTimeout: bits(63, 5),
    privateData: bytes(64, 168),
  },
  APR: {
    ...ids,
    infoLength: bits(8, 8),
    status: bits(9, 8),
    info: bytes(12, 72),
    privateData: bytes(84, 148),
  },
} as const;

/** Attribute identifiers of the MAD's header (IBTA vol 1 §16.7.3). */
export const ATTRIBUTES = {
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

export type CmName = keyof typeof LAYOUTS;

/** The fields of a message. */
export type CmFields<N extends CmName> = {
  -readonly [K in keyof (typeof LAYOUTS)[N]]: (typeof LAYOUTS)[N][K] extends Field<infer V> ? V : never;
};
