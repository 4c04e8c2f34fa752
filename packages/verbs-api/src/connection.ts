/**
 * Connects two queue pairs without a connection manager: what each side has to know of the other, and the attributes
 * that follow from it.
 */
import {
  Access,
  type GidEntry,
  invalid,
  type QpAttr,
  type QpState,
  type QpType,
  RoceError,
  transition,
} from '@node-roce/transport';
import { ackTimeoutCodeFor, gidFromText, isIpv4Mapped, isLinkLocal, rnrTimerCodeFor } from '@node-roce/wire';
import { addressVector } from './address-vector.ts';
import type { EngineFacts } from './engine/engine.ts';
import { described } from './options.ts';

/** The data that a side sends to the other. Plain data; survives JSON. */
export interface ConnectionData {
  /** 24 bits. */
  qpNum: number;
  /** First PSN that this side sends, 24 bits. */
  psn: number;
  /** A numeric address, or a GID's text. */
  gid: string;
  /** Largest path MTU of its port; 1024 where it is absent. */
  mtu?: number;
  /**
   * Its requester handles ACKs of packets that it has not retransmitted (`recovery.selective`): a responder of
   * node-roce that keeps early packets then acknowledges them at once.
   */
  selective?: boolean;
}

/** Options of `qp.connect`; each has a default. */
export interface ConnectOptions {
  /** Bytes; the smaller of the two ports' unless given. */
  pathMtu?: number;
  /**
   * Index of the local GID. Unless given: the one that `connectionData` sent to the peer if it is of the
   * peer's kind (IPv4, IPv6, IPv6 link-local), else the first that is.
   */
  gidIndex?: number;
  /** Code; 14 (67 ms, retried after two of them). 0 waits for ever. */
  timeout?: number;
  /** The same in milliseconds, in place of `timeout`: the next longer code holds. */
  ackTimeoutMs?: number;
  /** 7. */
  retryCnt?: number;
  /** 7, which is for ever. */
  rnrRetry?: number;
  /** Code; 12 (0.64 ms). */
  minRnrTimer?: number;
  /** The same in milliseconds, in place of `minRnrTimer`: the next longer code holds. */
  rnrTimerMs?: number;
  /** READs and atomics out at once; 16. */
  maxRdAtomic?: number;
  /** READs and atomics served at once; 16. */
  maxDestRdAtomic?: number;
  /** `Access` bits that peers get on this queue pair; all remote operations unless given. */
  access?: number;
  /** 20 bits; 0: the UDP source port comes from the two QPNs. */
  flowLabel?: number;
  /** DSCP << 2 | ECN; 0. */
  trafficClass?: number;
  /** TTL or hop limit, 1 … 255; 64. */
  hopLimit?: number;
  /** 0 … 15; 0. */
  sl?: number;
}

/** The attributes of the three steps from RESET to RTS. */
export function connectAttributes(
  local: { initialPsn: number; gidIndex: number | undefined },
  remote: ConnectionData,
  options: ConnectOptions,
  facts: Pick<EngineFacts, 'gids' | 'activeMtu'>,
  type: QpType = 'RC',
): { init: QpAttr; rtr: QpAttr; rts: QpAttr } {
  // It came from the peer, as JSON perhaps.
  if (typeof remote !== 'object' || remote === null) {
    throw invalid('remote', `${remote} is no connection data`, '{ qpNum, psn, gid, mtu }');
  }
  const dgid = gidOf(remote.gid);
  if (dgid.every((byte) => byte === 0)) {
    throw invalid(
      'ahAttr.grh.dgid',
      "the peer's GID is ::, which is no address: its program was started without a GID index (ibv_rc_pingpong and others: -g; perftest: -x)",
      "the GID of the peer's RoCE device",
    );
  }
  const sgidIndex = options.gidIndex ?? sameKind(facts.gids, dgid, local.gidIndex);
  if (sgidIndex < 0) {
    throw invalid(
      'gid',
      `no local address is of the kind of ${remote.gid}`,
      facts.gids.map((g) => g.address).join(', '),
    );
  }
  const access = options.access ?? Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;
  const { flowLabel = 0, trafficClass = 0, hopLimit = 64, sl = 0 } = options;
  const ahAttr = addressVector({ gid: dgid, sgidIndex, flowLabel, trafficClass, hopLimit, sl });
  const all = {
    init: { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: access },
    rtr: {
      qpState: 'RTR',
      ahAttr,
      pathMtu: options.pathMtu ?? Math.min(facts.activeMtu, remote.mtu ?? 1024),
      destQpNum: remote.qpNum,
      rqPsn: remote.psn,
      maxDestRdAtomic: options.maxDestRdAtomic ?? 16,
      minRnrTimer: codeOf(options, 'minRnrTimer', 'rnrTimerMs', rnrTimerCodeFor) ?? 12,
      qpAccessFlags: access,
    },
    rts: {
      qpState: 'RTS',
      sqPsn: local.initialPsn,
      timeout: codeOf(options, 'timeout', 'ackTimeoutMs', ackTimeoutCodeFor) ?? 14,
      retryCnt: options.retryCnt ?? 7,
      rnrRetry: options.rnrRetry ?? 7,
      maxRdAtomic: options.maxRdAtomic ?? 16,
    },
  } satisfies Record<string, QpAttr>;
  return {
    init: all.init,
    rtr: takenBy(type, 'INIT', all.rtr),
    rts: takenBy(type, 'RTR', all.rts),
  };
}

/** The code of a timer that is given as a code or in milliseconds. */
function codeOf(
  options: ConnectOptions,
  code: 'timeout' | 'minRnrTimer',
  time: 'ackTimeoutMs' | 'rnrTimerMs',
  codeFor: (microseconds: number) => number,
): number | undefined {
  const { [code]: given, [time]: milliseconds } = options;
  if (milliseconds === undefined) return given;
  if (given !== undefined) throw invalid(time, `given with ${code}`, `one of ${code} and ${time}`);
  if (!(milliseconds > 0)) throw invalid(time, `${milliseconds}`, 'milliseconds, more than 0');
  return codeFor(milliseconds * 1000);
}

/** The attributes that the transition of this type takes: UC has no timers, retries, READs and atomics. */
export function takenBy(type: QpType, from: QpState, attr: QpAttr): QpAttr {
  const { required, optional } = transition(type, from, attr.qpState!)!;
  const names = ['qpState', ...required, ...optional];
  return Object.fromEntries(Object.entries(attr).filter(([name]) => names.includes(name)));
}

/** The preferred index if its GID is of the same kind as `gid`, else the first of the kind, else −1. */
export function sameKind(gids: readonly GidEntry[], gid: Uint8Array, preferred: number | undefined): number {
  const fits = (entry: GidEntry | undefined) => entry !== undefined && kindOf(entry.gid) === kindOf(gid);
  if (preferred !== undefined && fits(gids[preferred])) return preferred;
  return gids.findIndex(fits);
}

const isEmpty = (gid: Uint8Array) => gid.every((byte) => byte === 0);
const kindOf = (gid: Uint8Array) =>
  isIpv4Mapped(gid) ? 4 : isLinkLocal(gid) ? 'link' : isEmpty(gid) ? 'none' : 6;

/** The GID at an index; EINVAL where there is none. */
export function gidAt(gids: readonly GidEntry[], gidIndex: number): GidEntry {
  const entry = gids[gidIndex];
  if (!entry) throw invalid('gidIndex', `no GID ${gidIndex}`, `0 … ${gids.length - 1}`);
  return entry;
}

/** The GID that peers are given unless the program chooses: one that reaches past the link, if any. */
export function defaultGid(gids: readonly GidEntry[]): number {
  return Math.max(
    0,
    gids.findIndex(({ gid }) => !isLinkLocal(gid) && !isEmpty(gid)),
  );
}

/** The 16 bytes of a GID, or of a numeric IP address. */
export function gidBytes(gid: string | Uint8Array): Uint8Array {
  if (typeof gid === 'string') return gidOf(gid);
  if (!(gid instanceof Uint8Array) || gid.length !== 16)
    throw invalid('gid', described(gid), 'an IP address, or the 16 bytes of a GID');
  return gid;
}

function gidOf(text: string): Uint8Array {
  try {
    return gidFromText(text);
  } catch (cause) {
    throw new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `gid: ${text} is no address`, {
      errno: 'EINVAL',
      attribute: 'gid',
      expected: 'a numeric IPv4 or IPv6 address or a GID',
      cause,
    });
  }
}
