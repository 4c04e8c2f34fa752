/** Attributes of queue pairs that follow from the messages of both sides (IBTA vol 1 §12.9; core/cm.c `cm_init_qp_*_attr`). */
import { ackTimeoutCode, type Route, repliedQpn } from '@node-roce/cm';
import { Access, type QpAttr, type QpType } from '@node-roce/verbs-api';
import { addressVector, takenBy } from '@node-roce/verbs-api/parts';
import { type CmFields, mtuEnumToBytes } from '@node-roce/wire';

import type { RequestTerms } from './incoming.ts';

/** Our ACK delay, the same as that of rxe. */
export const ACK_DELAY = 15;
/** 0.64 ms; Linux leaves it at 0, which is 0.66 s. */
const MIN_RNR_TIMER = 12;
/** The longest ACK timeout of ours, and ACK delay, that the peer's message determines: 8.6 s and 4.3 s. 31 would be hours. */
const MAX_ASKED_TIMEOUT = 21;
const MAX_ASKED_DELAY = 20;
const ALL_ACCESS = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;

/** The parameters of one side, and those of its queue pair. */
export interface OwnSide {
  type: QpType;
  psn: number;
  responderResources: number;
  initiatorDepth: number;
  retryCount: number;
  minRnrTimer: number | undefined;
  ackTimeout: number | undefined;
  packetLifetime: number;
  /** READs and atomics that the device serves, and has out, at a time. */
  limits: { maxQpRdAtom: number; maxQpInitRdAtom: number };
}

/** The way of a listener's data: to the address that REQ names, which is not always the one that it came from. */
const routeOfRequest = (message: RequestTerms, from: Route): Route => ({
  sgidIndex: from.sgidIndex,
  gid: message.primaryLocalGid,
  trafficClass: message.primaryTrafficClass,
  hopLimit: from.hopLimit,
  flowLabel: message.primaryFlowLabel,
});

const accessFor = (responderResources: number): number =>
  responderResources > 0 ? ALL_ACCESS : Access.REMOTE_WRITE;

interface Steps {
  rtr: QpAttr;
  rts: QpAttr;
}

/** The attributes that the type takes: an XRC initiator has no responder, and a target no requester. */
const stepsOf = (type: QpType, { rtr, rts }: Steps): Steps => ({
  rtr: takenBy(type, 'INIT', rtr),
  rts: takenBy(type, 'RTR', rts),
});

/** Initiator, from REP. */
export function initiatorSteps(own: OwnSide, reply: CmFields<'REP'>, route: Route, pathMtu: number): Steps {
  return stepsOf(own.type, {
    rtr: {
      qpState: 'RTR',
      ahAttr: addressVector(route),
      pathMtu,
      destQpNum: repliedQpn(own.type === 'XRC_INI' ? 'XRC' : 'RC', reply),
      rqPsn: own.psn,
      // The READs that the peer may have outstanding are those that this side serves, and the other way round.
      maxDestRdAtomic: Math.min(reply.initiatorDepth, own.limits.maxQpRdAtom),
      minRnrTimer: own.minRnrTimer ?? MIN_RNR_TIMER,
      qpAccessFlags: accessFor(own.responderResources),
    },
    rts: {
      qpState: 'RTS',
      sqPsn: reply.startingPsn,
      timeout:
        own.ackTimeout ?? ackTimeoutCode(Math.min(reply.targetAckDelay, MAX_ASKED_DELAY), own.packetLifetime),
      retryCnt: own.retryCount,
      rnrRetry: reply.rnrRetryCount,
      maxRdAtomic: Math.min(reply.responderResources, own.limits.maxQpInitRdAtom),
    },
  });
}

/** The ACK timeout in REQ; 0 is for ever, and a peer that is gone would not be found out. */
const askedTimeout = ({ primaryAckTimeout }: RequestTerms, { packetLifetime }: OwnSide): number =>
  primaryAckTimeout === 0
    ? ackTimeoutCode(ACK_DELAY, packetLifetime)
    : Math.min(primaryAckTimeout, MAX_ASKED_TIMEOUT);

/** Listener, from REQ. RTS follows once the peer is ready. */
export function listenerSteps(own: OwnSide, message: RequestTerms, from: Route): Steps {
  return stepsOf(own.type, {
    rtr: {
      qpState: 'RTR',
      ahAttr: addressVector(routeOfRequest(message, from)),
      pathMtu: mtuEnumToBytes(message.pathMtu),
      destQpNum: message.localQpn,
      rqPsn: own.psn,
      maxDestRdAtomic: Math.min(own.responderResources, own.limits.maxQpRdAtom),
      minRnrTimer: own.minRnrTimer ?? MIN_RNR_TIMER,
      qpAccessFlags: accessFor(own.responderResources),
    },
    rts: {
      qpState: 'RTS',
      sqPsn: message.startingPsn,
      timeout: own.ackTimeout ?? askedTimeout(message, own),
      retryCnt: message.retryCount,
      rnrRetry: message.rnrRetryCount,
      maxRdAtomic: Math.min(own.initiatorDepth, own.limits.maxQpInitRdAtom),
    },
  });
}
