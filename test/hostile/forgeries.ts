/**
 * Packets that are right in everything but one thing: made from a packet that is about to arrive, to arrive just before
 * it. Were the check that is meant missing, each would be taken in the real one's place.
 */
import { DEFAULT_PKEY, decodePacket, encodePacket, type Random, type SimPacket } from '@node-roce/sim';
import {
  BTH_BYTES,
  BTH_PAD_SHIFT,
  BthFlags,
  gidEquals,
  Opcode,
  type OpcodeInfo,
  opcodeInfo,
  psnAdd,
  setU16,
  setU24,
  Transport,
} from '@node-roce/wire';
import { Bth } from './bth-offsets.ts';
import { filled } from './marker.ts';

/** A packet that is about to be delivered, and the facts that its receiver knows and the forger does not. */
export interface Target {
  packet: SimPacket;
  info: OpcodeInfo;
  /** PSN of the next request that its queue pair takes, and of the next that it sends. */
  expectedPsn: number;
  nextPsn: number;
  /** QPNs that exist at the receiver. */
  qpns: ReadonlySet<number>;
  groups: readonly Uint8Array[];
}

export interface Forgery {
  packet: SimPacket;
  /** The device's counter that has to go up by one for it; several rules may drop it where none is named. */
  counter?: string;
  /** An unreliable queue pair looks at it: the oracle of deliveries has to know. */
  arrives?: boolean;
}

type Forger = (target: Target, random: Random) => Forgery | undefined;

/** Further than any window, any READ and any retransmission reach. */
const FAR = 20_000;
const HALF = 0x80_0000;
const WHOLE_TABLE = Array.from({ length: 256 }, (_, opcode) => opcodeInfo(opcode));
/** Those of RC are requests that are refused. */
const UNKNOWN_OPCODES = WHOLE_TABLE.flatMap((info, opcode) => (info || opcode < 0x20 ? [] : [opcode]));
const RC_REQUESTS = WHOLE_TABLE.filter(
  (info): info is OpcodeInfo => info?.transport === Transport.RC && info.isRequest,
);
const isRc = ({ info }: Target) => info.transport === Transport.RC;
const isUc = ({ info }: Target) => info.transport === Transport.UC;
const isUd = ({ info }: Target) => info.transport === Transport.UD;
const isToGroup = ({ packet, groups }: Target) =>
  groups.some((group) => gidEquals(group, packet.destination));

/** The real packet with bytes of its own, its payload replaced by the marker. */
function copyOf({ packet, info }: Target): SimPacket {
  const bytes = packet.bytes.slice();
  filled(bytes.subarray(Math.min(bytes.length, info.headerLength)));
  return { ...packet, bytes };
}

/** Another request of the same queue pair, with headers that hold anything. */
function anyRcRequest(target: Target, random: Random, psn: number): SimPacket {
  const info = random.pick(RC_REQUESTS);
  const payload = info.hasPayload ? 4 * random.between(0, 300) : 0;
  const bytes = new Uint8Array(info.headerLength + payload);
  for (let i = BTH_BYTES; i < info.headerLength; i++) bytes[i] = random.next();
  filled(bytes.subarray(info.headerLength));
  bytes.set(target.packet.bytes.subarray(0, BTH_BYTES));
  bytes[Bth.OPCODE] = info.opcode;
  bytes[Bth.FLAGS] &= ~BthFlags.PAD;
  bytes[Bth.ACK_REQ] = random.chance(0.5) ? 0x80 : 0;
  setU24(bytes, Bth.PSN, psn);
  return { ...target.packet, bytes };
}

/** Each by the check that it fails, in the order in which a receiver looks. */
export const FORGERIES: Record<string, Forger> = {
  damaged: (target) => ({ packet: { ...copyOf(target), corrupt: true }, counter: 'icrcErrors' }),

  headerVersion(target, random) {
    const packet = copyOf(target);
    packet.bytes[Bth.FLAGS] |= random.between(1, 15);
    return { packet, counter: 'malformed' };
  },

  unknownOpcode(target, random) {
    const packet = copyOf(target);
    packet.bytes[Bth.OPCODE] = random.pick(UNKNOWN_OPCODES);
    return { packet, counter: 'malformed' };
  },

  cutInTheHeaders(target, random) {
    const { packet, info } = target;
    const words = random.between(0, info.headerLength / 4 - 1);
    return { packet: { ...packet, bytes: packet.bytes.slice(0, 4 * words) }, counter: 'malformed' };
  },

  notWholeWords(target, random) {
    const { bytes } = target.packet;
    const longer = new Uint8Array(bytes.length + random.between(1, 3));
    longer.set(bytes);
    return { packet: { ...target.packet, bytes: longer }, counter: 'malformed' };
  },

  padLongerThanThePayload(target, random) {
    const { packet, info } = target;
    const bytes = packet.bytes.slice(0, info.headerLength);
    bytes[Bth.FLAGS] |= random.between(1, 3) << BTH_PAD_SHIFT;
    return { packet: { ...packet, bytes }, counter: 'malformed' };
  },

  payloadOfAnAnswerThatHasNone(target, random) {
    const { packet, info } = target;
    if (info.hasPayload || info.isRequest) return undefined;
    const bytes = filled(new Uint8Array(packet.bytes.length + 4 * random.between(1, 64)));
    bytes.set(packet.bytes);
    return { packet: { ...packet, bytes }, counter: 'malformed' };
  },

  congestionNotification(target, random) {
    const packet = copyOf(target);
    packet.bytes[Bth.OPCODE] = Opcode.CNP;
    if (random.chance(0.5)) packet.bytes = packet.bytes.slice(0, BTH_BYTES);
    return { packet, counter: 'cnpReceived' };
  },

  nobodysQueuePair(target, random) {
    const packet = copyOf(target);
    const qpn = random.between(0, 0xff_fffe);
    if (target.qpns.has(qpn)) return undefined;
    setU24(packet.bytes, Bth.DEST_QP, qpn);
    return { packet, counter: 'unknownQp' };
  },

  managementToQp1: (target, random) => datagramTo(target, random, random.pick([0, 1]), 0x8001_0000),

  groupsNumberToOneAddress: (target, random) =>
    isToGroup(target) ? undefined : datagramTo(target, random, 0xff_ffff, random.next()),

  connectionsPacketToAGroup(target, random) {
    if (isUd(target) || target.groups.length === 0) return undefined;
    return { packet: { ...copyOf(target), destination: random.pick(target.groups) }, counter: 'unknownQp' };
  },

  anotherService(target, random) {
    const info = random.pick(WHOLE_TABLE);
    if (!info || info.transport === target.info.transport || info.transport === Transport.CNP)
      return undefined;
    const bytes = new Uint8Array(info.headerLength + (info.hasPayload ? 4 * random.between(0, 64) : 0));
    for (let i = BTH_BYTES; i < info.headerLength; i++) bytes[i] = random.next();
    filled(bytes.subarray(info.headerLength));
    bytes.set(target.packet.bytes.subarray(0, BTH_BYTES));
    bytes[Bth.OPCODE] = info.opcode;
    bytes[Bth.FLAGS] &= ~BthFlags.PAD;
    return { packet: { ...target.packet, bytes }, counter: 'unknownQp' };
  },

  partitionKey(target, random) {
    const packet = copyOf(target);
    setU16(packet.bytes, Bth.PKEY, random.next() & 0x7ffe);
    return { packet, counter: 'badPkey' };
  },

  sourceAddress(target, random) {
    if (isUd(target)) return undefined;
    const source = target.packet.source.slice();
    const own = random.chance(0.2);
    if (own) source.set(target.packet.destination);
    else source[random.between(0, 15)] ^= random.between(1, 255);
    return { packet: { ...copyOf(target), source }, counter: 'wrongSource' };
  },

  queueKey(target, random) {
    const { info } = target;
    if (!isUd(target) || info.offsets.deth < 0) return undefined;
    if (isToGroup(target)) return undefined;
    const forged = copyOf(target);
    forged.bytes[info.offsets.deth + random.between(0, 3)] ^= random.between(1, 255);
    return { packet: forged, counter: 'qkeyViolations' };
  },

  /**
   * Half of all PSNs are ahead. It draws one NAK, and slows the connection down: so not often. A responder that keeps early packets
   * takes one of the next 1,024 for the real one.
   */
  requestAhead(target, random) {
    if (!isRc(target) || !target.info.isRequest || !random.chance(0.03)) return undefined;
    return { packet: anyRcRequest(target, random, psnAdd(target.expectedPsn, random.between(1, 64))) };
  },

  requestFarAhead(target, random) {
    if (!isRc(target) || !target.info.isRequest || !random.chance(0.07)) return undefined;
    return {
      packet: anyRcRequest(target, random, psnAdd(target.expectedPsn, random.between(FAR, HALF - 1))),
    };
  },

  /** The other half is behind: acknowledged, at most, and never executed. */
  requestBehind(target, random) {
    if (!isRc(target) || !target.info.isRequest) return undefined;
    const psn = psnAdd(
      target.expectedPsn,
      -(random.chance(0.3) ? random.between(1, 64) : random.between(FAR, HALF)),
    );
    return { packet: anyRcRequest(target, random, psn) };
  },

  answerOfThePast(target, random) {
    if (!isRc(target) || target.info.isRequest) return undefined;
    return anyAnswer(target, random, psnAdd(target.nextPsn, -random.between(FAR, HALF - FAR)));
  },

  answerOfTheFuture(target, random) {
    if (!isRc(target) || target.info.isRequest) return undefined;
    return anyAnswer(target, random, psnAdd(target.nextPsn, random.between(0, HALF - FAR)));
  },

  /** UC: goes on with a message that is not under way, or not with this packet. */
  strayContinuation(target, random) {
    if (!isUc(target) || target.info.first || !random.chance(0.1)) return undefined;
    const packet = copyOf(target);
    setU24(packet.bytes, Bth.PSN, psnAdd(target.expectedPsn, random.between(1, 0xff_ffff)));
    return { packet, arrives: true };
  },

  /** UC: a WRITE before another one's beginning, with a wrong key or out of every region. */
  unreliableWriteElsewhere(target, random) {
    const { info } = target;
    if (!isUc(target) || !info.isWrite || !info.first || info.hasImmediate) return undefined;
    const packet = copyOf(target);
    if (packet.bytes.length === info.headerLength) return undefined;
    // The key is the four bytes behind the address.
    const at = info.offsets.reth + (random.chance(0.5) ? random.between(0, 3) : random.between(8, 11));
    packet.bytes[at] ^= random.between(1, 255);
    return { packet };
  },
};

function datagramTo(target: Target, random: Random, qpn: number, qkey: number): Forgery | undefined {
  if (target.qpns.has(qpn)) return undefined;
  const bytes = encodePacket({
    opcode: Opcode.UD_SEND_ONLY,
    destQpn: qpn,
    psn: random.between(0, 0xff_ffff),
    ackReq: false,
    solicited: random.chance(0.5),
    pkey: DEFAULT_PKEY,
    deth: { qkey, srcQpn: 1 },
    payload: filled(new Uint8Array(256)),
  });
  return { packet: { ...target.packet, bytes }, counter: 'unknownQp' };
}

/** An ACK, a NAK or an RNR NAK of any code, or the real answer's like. */
function anyAnswer(target: Target, random: Random, psn: number): Forgery {
  if (random.chance(0.3)) {
    const packet = copyOf(target);
    setU24(packet.bytes, Bth.PSN, psn);
    return { packet, counter: 'staleResponses' };
  }
  const decoded = decodePacket(target.packet.bytes);
  if (!decoded.ok) throw new Error(decoded.reason);
  const bytes = encodePacket({
    ...decoded.packet,
    opcode: Opcode.RC_ACKNOWLEDGE,
    psn,
    aeth: { syndrome: random.next() & 0xff, msn: random.next() & 0xff_ffff },
    original: undefined,
    payload: new Uint8Array(0),
  });
  return { packet: { ...target.packet, bytes }, counter: 'staleResponses' };
}
