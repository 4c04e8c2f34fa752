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

/** The contents of a request. */
export interface ConnectionRequest {
  /** As far as the wire carries it: zeros stand behind what the peer wrote. */
  privateData: Uint8Array;
  /** READs and atomics that the peer wants to have out: what this side should serve. 0 of a datagram service. */
  responderResources: number;
  /** READs and atomics that the peer serves. */
  initiatorDepth: number;
  /** The peer asks for credits (`flowControl` of its parameters). */
  flowControl: boolean;
  /** The address in the request is not the one that it came from: data would go astray. */
  translated: boolean;
}
