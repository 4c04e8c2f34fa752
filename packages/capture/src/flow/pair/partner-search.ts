/** The state of the search for a direction’s partner and its sender’s queue pair. */
import type { CmConnection, CmEnd } from './cm.ts';

/** The search of one direction for its partner; `Other` is a direction. */
export class PartnerSearch<Other> {
  /** Sender's queue pair: of datagrams, from the connection manager, or the partner's; −1: not known. */
  sourceQp: number;
  /** The connection, if the connection manager's messages name it. */
  cm: CmConnection | undefined;
  /** The sender's end of it. */
  cmEnd: CmEnd | undefined;
  /** The last two ranges of PSNs that requests were of (`candidates.ts`); −1: none. */
  psnRange = -1;
  psnRangeBefore = -1;
  /** Opposite directions, each with how well the responses here fit its requests. */
  evidence: Map<Other, Evidence> | undefined;
  /** Opposite directions that have such evidence of this one. */
  suspects: Set<Other> | undefined;
  #waiting: PendingResponse[] = [];

  constructor(sourceQp: number) {
    this.sourceQp = sourceQp;
  }

  /** Responses that came before it was known whose they are: the last ones. */
  get waiting(): readonly PendingResponse[] {
    return this.#waiting;
  }

  wait(response: PendingResponse): void {
    this.#waiting.push(response);
    if (this.#waiting.length > MAX_PENDING_RESPONSES) this.#waiting.shift();
  }

  /** The partner is found: hands them out once. */
  takeWaiting(): readonly PendingResponse[] {
    const waiting = this.#waiting;
    this.#waiting = [];
    return waiting;
  }

  /** The partner is certain: nobody asks for the evidence any more. */
  forget(): void {
    this.evidence = undefined;
    this.suspects = undefined;
  }
}

/** Responses kept until it is known whose they are. */
const MAX_PENDING_RESPONSES = 64;

/** The parts of a response that wait for its pairing. */
export interface PendingResponse {
  psn: number;
  time: number;
  frame: number;
  operation: number;
  last: boolean;
  /** −1: the packet has none, or the capture was cut before it. */
  syndrome: number;
}

/** How often the responses of one direction could be answers to the requests of another, and how often not. */
export interface Evidence {
  fits: number;
  misfits: number;
}
