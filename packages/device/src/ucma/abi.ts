/**
 * The interface of /dev/infiniband/rdma_cm in bytes, little-endian (include/uapi/rdma/rdma_user_cm.h): commands without their header, and
 * responses.
 */
import { constants } from 'node:os';
import { gidOf, type RequestTerms, type SocketAddress } from '@node-roce/rdmacm/parts';
import type { AhAttr, QpAttr } from '@node-roce/verbs-api';
import { type CmFields, gidToIpText, isIpv4Mapped, mtuBytesToEnum } from '@node-roce/wire';
import { Failed } from '../protocol.ts';

/** Commands by their number. AF_IB, XRC and GET_OPTION are not served. */
export const Command = {
  CREATE_ID: 0,
  DESTROY_ID: 1,
  BIND_IP: 2,
  RESOLVE_IP: 3,
  RESOLVE_ROUTE: 4,
  QUERY_ROUTE: 5,
  CONNECT: 6,
  LISTEN: 7,
  ACCEPT: 8,
  REJECT: 9,
  DISCONNECT: 10,
  INIT_QP_ATTR: 11,
  GET_EVENT: 12,
  GET_OPTION: 13,
  SET_OPTION: 14,
  NOTIFY: 15,
  JOIN_IP_MCAST: 16,
  LEAVE_MCAST: 17,
  MIGRATE_ID: 18,
  QUERY: 19,
  BIND: 20,
  RESOLVE_ADDR: 21,
  JOIN_MCAST: 22,
} as const;

/** `enum rdma_cm_event_type`. */
export const Event = {
  ADDR_RESOLVED: 0,
  ADDR_ERROR: 1,
  ROUTE_RESOLVED: 2,
  CONNECT_REQUEST: 4,
  CONNECT_RESPONSE: 5,
  UNREACHABLE: 7,
  REJECTED: 8,
  ESTABLISHED: 9,
  DISCONNECTED: 10,
  MULTICAST_JOIN: 12,
  TIMEWAIT_EXIT: 15,
} as const;

const { EAFNOSUPPORT, EINVAL, ENOSPC } = constants.errno;
const AF_INET = 2;
const AF_INET6 = 10;
const SOCKADDR_IN6_BYTES = 28;
const STORAGE_BYTES = 128;
const EVENT_BYTES = 336;
/** An event without its last members, which older programs have no room for. */
const OLD_EVENT_BYTES = 324;
const CONN_PARAM_BYTES = 272;
/** Private data of a `rdma_ucm_conn_param` at most; the length is a byte. */
const MAX_PRIVATE_DATA = 255;

/** A command. Reads throw EINVAL where it is too short. */
export class Fields {
  readonly #bytes: Buffer;
  readonly #out: number;
  /** Data behind its pointers: the value of an option, or the token of the channel that an id leaves. */
  readonly more: Uint8Array;

  /** @param out room that the program has for the response */
  constructor(bytes: Uint8Array, out: number, more: Uint8Array) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    this.#out = out;
    this.more = more;
  }

  /** ENOSPC where the program has no room for a response of so many bytes. */
  room(bytes: number): void {
    if (this.#out < bytes) throw new Failed(ENOSPC);
  }

  roomForEvent(): void {
    this.room(OLD_EVENT_BYTES);
  }

  #at(at: number, length: number): number {
    if (at + length > this.#bytes.length) throw new Failed(EINVAL);
    return at;
  }

  u8(at: number): number {
    return this.#bytes[this.#at(at, 1)];
  }

  u16(at: number): number {
    return this.#bytes.readUInt16LE(this.#at(at, 2));
  }

  u32(at: number): number {
    return this.#bytes.readUInt32LE(this.#at(at, 4));
  }

  u64(at: number): bigint {
    return this.#bytes.readBigUInt64LE(this.#at(at, 8));
  }

  bytes(at: number, length: number): Uint8Array {
    return Uint8Array.prototype.slice.call(this.#bytes, this.#at(at, length), at + length);
  }

  /** A `sockaddr_in` or `sockaddr_in6`; undefined for none. Another family, such as AF_IB, is EAFNOSUPPORT. */
  address(at: number): SocketAddress | undefined {
    const family = this.u16(at);
    if (family === 0) return undefined;
    if (family !== AF_INET && family !== AF_INET6) throw new Failed(EAFNOSUPPORT);
    const port = (this.u8(at + 2) << 8) | this.u8(at + 3);
    if (family === AF_INET) return { address: this.bytes(at + 4, 4).join('.'), port };
    const gid = this.bytes(at + 8, 16);
    // The way to write it of IPv4 in IPv6 is that of IPv4: the packets are.
    return { address: isIpv4Mapped(gid) ? gid.subarray(12).join('.') : gidToIpText(gid), port };
  }

  /** A `rdma_ucm_conn_param`. */
  parameters(at: number): Parameters {
    this.#at(at, CONN_PARAM_BYTES);
    return {
      qpn: this.u32(at) & 0xff_ffff,
      qkey: this.u32(at + 4),
      privateData: this.bytes(at + 8, Math.min(this.u8(at + 264), MAX_PRIVATE_DATA)),
      srq: this.u8(at + 265) !== 0,
      responderResources: this.u8(at + 266),
      initiatorDepth: this.u8(at + 267),
      flowControl: this.u8(at + 268) !== 0,
      retryCount: Math.min(this.u8(at + 269), 7),
      rnrRetryCount: Math.min(this.u8(at + 270), 7),
      isValid: this.u8(at + 271) !== 0,
    };
  }
}

/** A program's side of a connection (`struct rdma_ucm_conn_param`); retries are 7 at most, as in the kernel. */
export interface Parameters {
  qpn: number;
  qkey: number;
  privateData: Uint8Array;
  srq: boolean;
  responderResources: number;
  initiatorDepth: number;
  flowControl: boolean;
  retryCount: number;
  rnrRetryCount: number;
  isValid: boolean;
}

/** The peer's side of a connection, as the program sees it: the READs that the peer may have out are those that this side serves. */
export function termsOf(message: RequestTerms | CmFields<'REP'>): Partial<Parameters> {
  return {
    qpn: message.localQpn,
    srq: message.srq,
    responderResources: message.initiatorDepth,
    initiatorDepth: message.responderResources,
    flowControl: message.endToEndFlowControl,
    rnrRetryCount: message.rnrRetryCount,
    ...('privateData' in message ? { privateData: message.privateData } : {}),
  };
}

/** A response that is a number. */
export function numberResponse(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

/** The length of the address; 0 for none. */
function putAddress(to: Buffer, at: number, place: SocketAddress | undefined): number {
  if (!place) return 0;
  const isV4 = !place.address.includes(':');
  to.writeUInt16LE(isV4 ? AF_INET : AF_INET6, at);
  to.writeUInt16BE(place.port, at + 2);
  to.set(isV4 ? gidOf(place.address).subarray(12) : gidOf(place.address), at + (isV4 ? 4 : 8));
  return isV4 ? 16 : SOCKADDR_IN6_BYTES;
}

/** A `struct ib_uverbs_ah_attr`. */
function putAddressHandle(to: Buffer, at: number, { grh }: AhAttr): void {
  const { dgid, flowLabel, sgidIndex, hopLimit, trafficClass } = grh!;
  to.set(dgid, at);
  to.writeUInt32LE(flowLabel ?? 0, at + 16);
  to.set([sgidIndex ?? 0, hopLimit ?? 0, trafficClass ?? 0], at + 20);
  // is_global and port_num.
  to.set([1, 1], at + 29);
}

/** An event, as `struct rdma_ucm_event_resp` has it. */
export interface EventInit {
  uid: bigint;
  id: number;
  event: number;
  /** 0, −errno, or the peer's reason. */
  status?: number;
  connection?: Partial<Parameters>;
  /** Of a datagram service or a group. */
  datagram?: { qpn?: number; qkey?: number; to?: AhAttr; privateData?: Uint8Array };
}

/** The response of GET_EVENT. */
export function eventResponse({ uid, id, event, status = 0, connection, datagram }: EventInit): Buffer {
  const bytes = Buffer.alloc(EVENT_BYTES);
  bytes.writeBigUInt64LE(uid, 0);
  bytes.writeUInt32LE(id, 8);
  bytes.writeUInt32LE(event, 12);
  bytes.writeInt32LE(status, 16);
  const putData = (data: Uint8Array | undefined, at: number) => {
    const some = (data ?? new Uint8Array(0)).subarray(0, MAX_PRIVATE_DATA);
    bytes.set(some, at);
    bytes[at + MAX_PRIVATE_DATA + 1] = some.length;
  };
  if (connection) {
    const { qpn = 0, responderResources = 0, initiatorDepth = 0 } = connection;
    const { retryCount = 0, rnrRetryCount = 0, srq, flowControl } = connection;
    bytes.writeUInt32LE(qpn, 20);
    putData(connection.privateData, 28);
    bytes.set([Number(srq ?? false), responderResources, initiatorDepth], 285);
    bytes.set([Number(flowControl ?? false), retryCount, rnrRetryCount, 1], 288);
  }
  if (datagram) {
    bytes.writeUInt32LE(datagram.qpn ?? 0, 20);
    bytes.writeUInt32LE(datagram.qkey ?? 0, 24);
    if (datagram.to) putAddressHandle(bytes, 28, datagram.to);
    putData(datagram.privateData, 60);
  }
  return bytes;
}

/** Where an id is, and leads to. */
export interface Places {
  /** Undefined while the id has no device. */
  nodeGuid: Uint8Array | undefined;
  local: SocketAddress | undefined;
  remote: SocketAddress | undefined;
}

/** A path of RoCE: between the two GIDs. */
export interface PathInit {
  dgid: Uint8Array;
  sgid: Uint8Array;
  flowLabel: number;
  trafficClass: number;
  hopLimit: number;
  /** Bytes. */
  mtu: number;
}

const DEFAULT_PKEY = 0xffff;
/** The selectors of MTU, rate and lifetime: exactly this one. */
const EXACTLY = 2;
/** `IB_RATE_10_GBPS`, and a lifetime of 0.26 s. */
const RATE = 3;
const PACKET_LIFETIME = 16;

export const ROUTE_RESPONSE_BYTES = 208;

/** The response of QUERY_ROUTE. */
export function routeResponse({ nodeGuid, local, remote }: Places, path: PathInit | undefined): Buffer {
  const bytes = Buffer.alloc(ROUTE_RESPONSE_BYTES);
  if (nodeGuid) bytes.set(nodeGuid);
  if (path) {
    bytes.set(path.dgid, 8);
    bytes.set(path.sgid, 24);
    bytes.writeUInt32BE(path.flowLabel, 48);
    // Reversible.
    bytes.writeUInt32LE(1, 52);
    bytes.writeUInt32LE(mtuBytesToEnum(path.mtu), 56);
    bytes.writeUInt16BE(DEFAULT_PKEY, 60);
    bytes.set([path.hopLimit, path.trafficClass, 1, 0, EXACTLY, EXACTLY, RATE, EXACTLY, PACKET_LIFETIME], 62);
    bytes.writeUInt32LE(1, 192);
  }
  putAddress(bytes, 136, local);
  putAddress(bytes, 164, remote);
  bytes[196] = nodeGuid ? 1 : 0;
  // No index of a device of the kernel's.
  bytes.writeInt32LE(-1, 200);
  return bytes;
}

export const ADDRESS_RESPONSE_BYTES = 280;

/** The response of QUERY for addresses. */
export function addressResponse({ nodeGuid, local, remote }: Places): Buffer {
  const bytes = Buffer.alloc(ADDRESS_RESPONSE_BYTES);
  if (nodeGuid) bytes.set(nodeGuid);
  bytes[8] = nodeGuid ? 1 : 0;
  bytes.writeUInt16BE(nodeGuid ? DEFAULT_PKEY : 0, 10);
  bytes.writeUInt16LE(putAddress(bytes, 16, local), 12);
  bytes.writeUInt16LE(putAddress(bytes, 16 + STORAGE_BYTES, remote), 14);
  bytes.writeInt32LE(-1, 272);
  return bytes;
}

/** Bits of `enum ibv_qp_attr_mask`. */
const Mask = {
  STATE: 1 << 0,
  ACCESS_FLAGS: 1 << 3,
  PKEY_INDEX: 1 << 4,
  PORT: 1 << 5,
  QKEY: 1 << 6,
  AV: 1 << 7,
  PATH_MTU: 1 << 8,
  TIMEOUT: 1 << 9,
  RETRY_CNT: 1 << 10,
  RNR_RETRY: 1 << 11,
  RQ_PSN: 1 << 12,
  MAX_QP_RD_ATOMIC: 1 << 13,
  MIN_RNR_TIMER: 1 << 15,
  SQ_PSN: 1 << 16,
  MAX_DEST_RD_ATOMIC: 1 << 17,
  DEST_QPN: 1 << 20,
} as const;

/** `enum ibv_qp_state`. */
export const QpStates = { RESET: 0, INIT: 1, RTR: 2, RTS: 3, ERR: 6 } as const;

export const QP_ATTR_BYTES = 144;

/** The response of INIT_QP_ATTR: attributes, and the mask of those that are there. */
export function qpAttrResponse(state: number, attr: QpAttr): Buffer {
  const bytes = Buffer.alloc(QP_ATTR_BYTES);
  let mask: number = Mask.STATE;
  /** Writes an attribute that is there. */
  const put = (bit: number, value: number | undefined, write: (value: number) => void) => {
    if (value === undefined) return;
    mask |= bit;
    write(value);
  };
  const word = (at: number) => (value: number) => bytes.writeUInt32LE(value, at);
  const byte = (at: number) => (value: number) => bytes.writeUInt8(value, at);
  word(4)(state);
  word(8)(state);
  put(Mask.PATH_MTU, attr.pathMtu && mtuBytesToEnum(attr.pathMtu), word(12));
  put(Mask.QKEY, attr.qkey, word(20));
  put(Mask.RQ_PSN, attr.rqPsn, word(24));
  put(Mask.SQ_PSN, attr.sqPsn, word(28));
  put(Mask.DEST_QPN, attr.destQpNum, word(32));
  put(Mask.ACCESS_FLAGS, attr.qpAccessFlags, word(36));
  if (attr.ahAttr) {
    mask |= Mask.AV;
    putAddressHandle(bytes, 40, attr.ahAttr);
  }
  put(Mask.PKEY_INDEX, attr.pkeyIndex, (value) => bytes.writeUInt16LE(value, 124));
  put(Mask.MAX_QP_RD_ATOMIC, attr.maxRdAtomic, byte(130));
  put(Mask.MAX_DEST_RD_ATOMIC, attr.maxDestRdAtomic, byte(131));
  put(Mask.MIN_RNR_TIMER, attr.minRnrTimer, byte(132));
  put(Mask.PORT, attr.portNum, byte(133));
  put(Mask.TIMEOUT, attr.timeout, byte(134));
  put(Mask.RETRY_CNT, attr.retryCnt, byte(135));
  put(Mask.RNR_RETRY, attr.rnrRetry, byte(136));
  word(0)(mask);
  return bytes;
}
