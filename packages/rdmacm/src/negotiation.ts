/** Terms that both sides of a connection agree on: from parameters to messages, and from messages to attributes of the queue pair. */
import type { AcceptInit, ConnectInit } from '@node-roce/cm';
import type { DeviceLimits, QpAttr, QueuePair, XrcTarget } from '@node-roce/verbs-api';
import { type CmFields, ipCmServiceId, PortSpace } from '@node-roce/wire';
import { withHeader } from './addresses.ts';
import type { ConnectionRequest, PeerTerms } from './id-types.ts';
import type { RequestTerms } from './incoming.ts';
import type { ConnectionParameters, IdOptions, PortSpaceName } from './parameters.ts';
import type { Path } from './path.ts';
import { ACK_DELAY, initiatorSteps, listenerSteps, type OwnSide } from './qp-steps.ts';

const DEFAULT_DEPTH = 16;

/** From a message of the peer to its terms, seen from this side. */
export const peerTerms = (qpNum: number, message: RequestTerms | CmFields<'REP'>): PeerTerms => ({
  responderResources: message.initiatorDepth,
  initiatorDepth: message.responderResources,
  flowControl: message.endToEndFlowControl,
  rnrRetryCount: message.rnrRetryCount,
  srq: message.srq,
  qpNum,
});

/** Of a datagram service. */
export const NO_TERMS: PeerTerms = {
  responderResources: 0,
  initiatorDepth: 0,
  flowControl: false,
  rnrRetryCount: 0,
  srq: false,
  qpNum: 0,
};

/** The terms of one connection, from the offer of one side and the answer of the other. */
export class Negotiation {
  readonly #options: IdOptions;
  readonly #path: Path;
  #parameters: ConnectionParameters = {};
  /** READs and atomics that are offered to the other side. */
  #depths = { responderResources: DEFAULT_DEPTH, initiatorDepth: DEFAULT_DEPTH };
  /** This side asks for credits. */
  #wantsCredits = false;

  constructor(options: IdOptions, path: Path) {
    this.#options = options;
    this.#path = path;
  }

  /** Initiator: REQ. */
  request(portSpace: PortSpaceName, qp: QueuePair, parameters: ConnectionParameters): ConnectInit {
    const { maxQpRdAtom, maxQpInitRdAtom } = this.#limits;
    const {
      responderResources = Math.min(DEFAULT_DEPTH, maxQpRdAtom),
      initiatorDepth = Math.min(DEFAULT_DEPTH, maxQpInitRdAtom),
    } = parameters;
    const { retryCount = 7, rnrRetryCount = 7, privateData } = parameters;
    const { local, remote, route, pathMtu, timing } = this.#path;
    this.#parameters = parameters;
    this.#depths = { responderResources, initiatorDepth };
    this.#wantsCredits = parameters.flowControl ?? this.#path.device!.facts.credits;
    return {
      serviceId: ipCmServiceId(PortSpace[portSpace], remote!.port),
      route: route!,
      privateData: withHeader(local!, remote!, privateData),
      pathMtu,
      retryCount,
      rnrRetryCount,
      ...this.#depths,
      transport: qp.type === 'XRC_INI' ? 'XRC' : 'RC',
      qpn: qp.qpNum,
      startingPsn: qp.initialPsn,
      srq: qp.srq !== undefined,
      endToEndFlowControl: this.#wantsCredits,
      ackDelay: ACK_DELAY,
      ...timing,
    };
  }

  /** Listener: REP. */
  reply(qp: QueuePair | XrcTarget, asked: ConnectionRequest, parameters: ConnectionParameters): AcceptInit {
    // As librdmacm's rdma_accept(3): what the peer asks for, as far as the device has it.
    const { maxQpRdAtom, maxQpInitRdAtom } = this.#limits;
    const {
      responderResources = Math.min(asked.responderResources, maxQpRdAtom),
      initiatorDepth = Math.min(asked.initiatorDepth, maxQpInitRdAtom),
    } = parameters;
    const { rnrRetryCount = 7, privateData } = parameters;
    this.#parameters = parameters;
    this.#depths = { responderResources, initiatorDepth };
    this.#wantsCredits = parameters.flowControl ?? this.#path.device!.facts.credits;
    return {
      ...this.#depths,
      qpn: qp.qpNum,
      startingPsn: qp.initialPsn,
      rnrRetryCount,
      srq: qp.type === 'XRC_TGT' || qp.srq !== undefined,
      endToEndFlowControl: this.#wantsCredits && asked.flowControl,
      targetAckDelay: ACK_DELAY,
      ...(privateData ? { privateData } : {}),
    };
  }

  /** Both sides ask for credits: this one, and the peer's message. */
  credits(message: { endToEndFlowControl: boolean }): boolean {
    return this.#wantsCredits && message.endToEndFlowControl;
  }

  /** Initiator: the steps of the queue pair, from REP. */
  initiatorSteps(qp: QueuePair, reply: CmFields<'REP'>): { rtr: QpAttr; rts: QpAttr } {
    return initiatorSteps(this.#ownSide(qp), reply, this.#path.route!, this.#path.pathMtu);
  }

  /** Listener: the same, from REQ. */
  listenerSteps(qp: QueuePair | XrcTarget, request: RequestTerms): { rtr: QpAttr; rts: QpAttr } {
    return listenerSteps(this.#ownSide(qp), request, this.#path.route!);
  }

  get #limits(): DeviceLimits {
    return this.#path.device!.facts.limits;
  }

  #ownSide(qp: QueuePair | XrcTarget): OwnSide {
    const { minRnrTimer, ackTimeout } = this.#options;
    return {
      ...this.#depths,
      type: qp.type,
      psn: qp.initialPsn,
      retryCount: this.#parameters.retryCount ?? 7,
      minRnrTimer,
      ackTimeout,
      packetLifetime: this.#path.timing.packetLifetime,
      limits: this.#limits,
    };
  }
}
