/** The attributes of a queue pair, as ibv_modify_qp(3) set them: one immutable value, replaced as a whole. */
import { BthFlags } from '@node-roce/wire';
import type { AhAttr } from '../control.ts';

/** The way to the peer. */
export interface PathAttributes {
  readonly pkeyIndex: number;
  readonly portNum: number;
  readonly timeout: number;
  /** The address vector, and the values derived from it: index of the peer (−1: none) and of the local GID. */
  readonly ah: AhAttr | undefined;
  readonly peer: number;
  readonly local: number;
  /** The peer's GID as words in the machine's byte order. */
  readonly source: Readonly<Uint32Array>;
  readonly trafficClass: number;
  /** The same for packets with payload. */
  readonly dataTrafficClass: number;
  readonly sourcePort: number;
  /** Bytes of the IP header of its packets. */
  readonly ipBytes: number;
}

/** The way that a connection may migrate to. */
export type AlternatePath = PathAttributes & { readonly ah: AhAttr };

export interface QpAttributes extends PathAttributes {
  /** `Access` bits of the remote operations allowed. */
  readonly access: number;
  readonly qkey: number;
  readonly destQpn: number;
  /** Bytes. */
  readonly pathMtu: number;
  readonly retryCnt: number;
  readonly rnrRetry: number;
  readonly minRnrTimer: number;
  readonly maxRdAtomic: number;
  readonly maxDestRdAtomic: number;
  /** kbit/s; 0: no limit. */
  readonly rateLimit: number;
  /** SQ_DRAINED was asked for. */
  readonly notifyDrained: boolean;
  readonly alternate: AlternatePath | undefined;
  /** MigReq bit of its packets: 0 where it may migrate. */
  readonly migReq: number;
}

const NO_SOURCE = new Uint32Array(4);

const reset = (): QpAttributes => ({
  pkeyIndex: 0,
  portNum: 1,
  access: 0,
  qkey: 0,
  destQpn: 0,
  pathMtu: 256,
  timeout: 0,
  retryCnt: 0,
  rnrRetry: 0,
  minRnrTimer: 0,
  maxRdAtomic: 0,
  maxDestRdAtomic: 0,
  rateLimit: 0,
  notifyDrained: false,
  ah: undefined,
  peer: -1,
  local: 0,
  source: NO_SOURCE,
  trafficClass: 0,
  dataTrafficClass: 0,
  sourcePort: 0,
  ipBytes: 20,
  alternate: undefined,
  migReq: BthFlags.MIG_REQ,
});

/** RESET: nothing is set. */
export const RESET_ATTRIBUTES: QpAttributes = reset();

/**
 * The attributes with these changes. All values are of one hidden class of V8, which objects made by spreads are not: each packet
 * looks at some twenty of them, and those of many queue pairs would be searched for by name.
 */
export function changedAttributes(from: QpAttributes, changes: Partial<QpAttributes>): QpAttributes {
  return Object.assign(reset(), from, changes);
}
