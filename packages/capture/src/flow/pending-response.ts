/** Responses whose requester is not known yet, and how they speak for or against a direction. */

/** What is needed of a response. */
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
