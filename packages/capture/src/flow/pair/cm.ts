/**
 * Connections as the connection manager made them: QPNs, timeouts and retries from its REQ and REP on QP1 (IBTA vol 1
 * §12.6).
 */
import { cmFieldsAt, cmNameAt, MAD_HEADER_BYTES, MadHeader } from '@node-roce/wire';
import type { RocePacket } from '../../read/packet.ts';

/** Bytes of a REQ and a REP up to the last field that is read here: a cut capture may lack the rest. */
const REQ_BYTES = MAD_HEADER_BYTES + 96;
const REP_BYTES = MAD_HEADER_BYTES + 28;
/** REQs that wait for their REP. */
const MAX_OPEN = 10_000;

/** One end of a connection. */
export interface CmEnd {
  /** Index into the table of addresses. */
  address: number;
  qpn: number;
  /** Starting PSN that the message carries. */
  psn: number;
  /** How often it retries after RNR NAKs: the other end's message sets it (IBTA vol 1 §12.7.27). */
  rnrRetries: number;
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
  /** Of both ends, by the REQ. */
  retries: number;
  /** Of the REP. */
  frame: number;
  /** Transaction and communication IDs: the same where REQ and REP are retransmissions. */
  exchange: string;
  /** When the REQ came: no packet of the connection is older. */
  requested: number;
  /** Networks of the REQ and of the REP (`RocePacket.network`). */
  networks: readonly [number, number];
}

interface Request extends Omit<CmConnection, 'active' | 'passive' | 'frame' | 'networks'> {
  active: Omit<CmEnd, 'rnrRetries'>;
  /** Of the passive end. */
  rnrRetries: number;
  network: number;
}

/** Returns the queue pair number of a REP's sender: for XRC it stands in place of the EE context's (IBTA annex A14), and `localQpn` is 0. */
export const qpnOfRep = ({ localQpn, localEecn }: { localQpn: number; localEecn: number }): number =>
  localQpn === 0 ? localEecn : localQpn;

/** Reads packets to QP1. */
export class CmReader {
  readonly #requests = new Map<string, Request>();

  /** The connection that this packet completes, if it is the REP to a REQ that was seen. */
  take(packet: RocePacket): CmConnection | undefined {
    const { bytes, payload, end, info, source, destination } = packet;
    if (!info.hasPayload || payload + MAD_HEADER_BYTES > end) return undefined;
    const name = cmNameAt(bytes, payload);
    if (name === 'REQ' && payload + REQ_BYTES <= end) {
      const req = cmFieldsAt('REQ', bytes, payload);
      if (this.#requests.size >= MAX_OPEN) this.#requests.delete(this.#requests.keys().next().value!);
      this.#requests.set(`${source} ${destination} ${req.localCommId}`, {
        active: { address: source, qpn: req.localQpn, psn: req.startingPsn },
        pathMtu: req.pathMtu >= 1 && req.pathMtu <= 5 ? 128 << req.pathMtu : 0,
        ackTimeout: req.primaryAckTimeout,
        retries: req.retryCount,
        rnrRetries: req.rnrRetryCount,
        exchange: `${MadHeader.transactionId.get(bytes, payload)} ${req.localCommId}`,
        requested: packet.time,
        network: packet.network,
      });
    }
    if (name === 'REP' && payload + REP_BYTES <= end) {
      const rep = cmFieldsAt('REP', bytes, payload);
      const key = `${destination} ${source} ${rep.remoteCommId}`;
      const request = this.#requests.get(key);
      if (request === undefined) return undefined;
      this.#requests.delete(key);
      const { network, rnrRetries, ...known } = request;
      return {
        ...known,
        active: { ...request.active, rnrRetries: rep.rnrRetryCount },
        passive: { address: source, qpn: qpnOfRep(rep), psn: rep.startingPsn, rnrRetries },
        frame: packet.frame,
        exchange: `${known.exchange} ${rep.localCommId}`,
        networks: [network, packet.network],
      };
    }
    return undefined;
  }
}
