/** The parts and attributes that a queue pair is made of. */
import type { CompletionQueue } from '../completion-queue.ts';
import type { Congestion } from '../congestion/options.ts';
import type { QpType } from '../constants.ts';
import type { QpCap, Recovery } from '../control.ts';
import type { NewRing } from '../rings.ts';
import type { SharedReceiveQueue } from '../srq.ts';
import type { XrcDomain } from '../xrc/domain.ts';

/** Whether it is one of the two sides of XRC (annex A14): they have no receives of their own. */
export const isOfXrc = (type: QpType): boolean => type === 'XRC_INI' || type === 'XRC_TGT';

/** The attributes of a new queue pair; all of it is checked. */
export interface QueuePairInit {
  qpn: number;
  type: QpType;
  pd: number;
  sendCq: CompletionQueue;
  recvCq: CompletionQueue;
  srq: SharedReceiveQueue | undefined;
  cap: QpCap;
  sqSigAll: boolean;
  recovery: Recovery;
  congestion: Congestion;
  /** Path MTU of datagrams, bytes. */
  activeMtu: number;
  /** Of an XRC target queue pair. */
  domain?: XrcDomain | undefined;
  /** Connections of it may migrate to another path. */
  migrates: boolean;
  /** Its send queue is for rendezvous alone, and the program posts nothing to it. */
  rendezvous?: boolean;
  /** Where its rings are made; the adapter's own memory unless given. */
  newRing?: NewRing;
}
