/** Responses whose requester is not known yet, and how they speak for or against a direction. */

/** Responses kept until it is known whose they are. */
export const MAX_PENDING_RESPONSES = 64;

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
