/** Public types of ids. */
import type { AddressHandle } from '@node-roce/verbs-api';

/** Where an id is on its way. */
export type CmIdState =
  | 'IDLE'
  | 'BOUND'
  | 'ADDR_RESOLVED'
  | 'ROUTE_RESOLVED'
  | 'LISTEN'
  | 'CONNECT_REQUEST'
  | 'CONNECTING'
  | 'CONNECTED'
  | 'DISCONNECTING'
  | 'DISCONNECTED'
  | 'DESTROYED';

/** Where datagrams to a service or a group go: the `ud` of a send request. */
export interface DatagramPeer {
  /** The way. */
  ah: AddressHandle;
  /** The service's queue pair, or that of all groups. */
  remoteQpn: number;
  /** The Q_Key that datagrams have to carry. */
  remoteQkey: number;
}

/** Terms of the peer, from its request (REQ) or from its answer to ours (REP). Of a datagram service all are 0 and false. */
export interface PeerTerms {
  /** READs and atomics that the peer wants to have out: what this side should serve. */
  responderResources: number;
  /** READs and atomics that the peer serves. */
  initiatorDepth: number;
  /** The peer asks for credits (`flowControl` of its parameters). */
  flowControl: boolean;
  /** Retries of a request that finds no receive at the peer, 0 … 7; 7 is for ever. */
  rnrRetryCount: number;
  /** The peer's queue pair receives from a shared receive queue. */
  srq: boolean;
  /** The peer's queue pair. */
  qpNum: number;
}

/** The contents of a request. */
export interface ConnectionRequest extends PeerTerms {
  /** As far as the wire carries it: zeros stand behind what the peer wrote. */
  privateData: Uint8Array;
  /** Retries of a request without ACK, for both sides, 0 … 7. */
  retryCount: number;
  /** The address in the request is not the one that it came from: data would go astray. */
  translated: boolean;
}
