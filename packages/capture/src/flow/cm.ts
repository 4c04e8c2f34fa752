/**
 * Connections as the connection manager made them: QPNs, timeouts and retries out of its MADs on QP1
 * (IBTA vol 1 §12.6: REQ §12.6.5, REP §12.6.8; MAD header §13.4.3).
 */
import { u16, u24, u32 } from '@node-roce/wire';
import type { RocePacket } from '../read/packet.ts';

const MAD_HEADER = 24;
const CM_CLASS = 0x07;
const ATTRIBUTE_REQ = 0x10;
const ATTRIBUTE_REP = 0x13;
/** Offsets from the MAD's data on. */
const Req = { LOCAL_COMM_ID: 0, QPN: 32, PSN: 44, RETRIES: 47, MTU_RNR: 50, ACK_TIMEOUT: 95 } as const;
const Rep = { LOCAL_COMM_ID: 0, REMOTE_COMM_ID: 4, QPN: 12, PSN: 20, RNR: 27 } as const;
/** REQs that wait for their REP. */
const MOST_OPEN = 10_000;

/** One end of a connection. */
export interface CmEnd {
  /** Index into the table of addresses. */
  address: number;
  qpn: number;
  /** Starting PSN that the message carries. */
  psn: number;
}

export interface CmConnection {
  /** Sent the REQ. */
  active: CmEnd;
  /** Sent the REP. */
  passive: CmEnd;
  /** Bytes. */
  pathMtu: number;
  /** Code of the local ACK timeout, 0 … 31. */
  ackTimeout: number;
  retries: number;
  rnrRetries: number;
  /** Of the REP. */
  frame: number;
}

type Request = Omit<CmConnection, 'passive' | 'frame'>;

/** Reads what is sent to QP1. */
export class CmReader {
  readonly #requests = new Map<string, Request>();

  /** The connection that this packet completes, if it is the REP to a REQ that was seen. */
  take(packet: RocePacket): CmConnection | undefined {
    const { bytes, payload, end, info, source, destination } = packet;
    if (!info.hasPayload || payload + MAD_HEADER > end) return undefined;
    if (bytes[payload] !== 1 || bytes[payload + 1] !== CM_CLASS) return undefined;
    const data = payload + MAD_HEADER;
    const attribute = u16(bytes, payload + 16);
    if (attribute === ATTRIBUTE_REQ && data + 96 <= end) {
      const key = `${source} ${destination} ${u32(bytes, data + Req.LOCAL_COMM_ID)}`;
      if (this.#requests.size >= MOST_OPEN) this.#requests.delete(this.#requests.keys().next().value!);
      this.#requests.set(key, requestOf(bytes, data, source));
    }
    if (attribute === ATTRIBUTE_REP && data + 28 <= end) {
      const key = `${destination} ${source} ${u32(bytes, data + Rep.REMOTE_COMM_ID)}`;
      const request = this.#requests.get(key);
      if (request === undefined) return undefined;
      this.#requests.delete(key);
      const passive = {
        address: source,
        qpn: u24(bytes, data + Rep.QPN),
        psn: u24(bytes, data + Rep.PSN),
      };
      return { ...request, passive, frame: packet.frame };
    }
    return undefined;
  }
}

function requestOf(bytes: Uint8Array, data: number, address: number): Request {
  const mtu = bytes[data + Req.MTU_RNR] >> 4;
  return {
    active: { address, qpn: u24(bytes, data + Req.QPN), psn: u24(bytes, data + Req.PSN) },
    pathMtu: mtu >= 1 && mtu <= 5 ? 128 << mtu : 0,
    ackTimeout: bytes[data + Req.ACK_TIMEOUT] >> 3,
    retries: bytes[data + Req.RETRIES] & 7,
    rnrRetries: bytes[data + Req.MTU_RNR] & 7,
  };
}
