/**
 * Where receives wait for messages: a queue pair's own receive queue, or one that several share
 * (SRQ, IBTA vol 1 §10.2.9).
 */
import type { ModelReceiveRequest } from './work.ts';

export interface ReceiveQueue {
  /** Oldest first. */
  waiting: ModelReceiveRequest[];
  /** An SRQ: the error state of one queue pair flushes nothing of it, and its receives are not counted in AETHs. */
  shared: boolean;
  /** SRQ: with fewer than this waiting, the event is due; 0: not armed. */
  limit: number;
  /** SRQ_LIMIT_REACHED events raised so far. */
  limitEvents: number;
}

export function createReceiveQueue(shared = false): ReceiveQueue {
  return { waiting: [], shared, limit: 0, limitEvents: 0 };
}

/** A message takes the oldest receive. The limit of an SRQ raises its event once, then it is not armed any more. */
export function takeReceive(queue: ReceiveQueue): ModelReceiveRequest | undefined {
  const receive = queue.waiting.shift();
  if (receive !== undefined) checkLimit(queue);
  return receive;
}

/** §10.2.9.1: the event comes when the number of receives falls below the limit. */
function checkLimit(queue: ReceiveQueue): void {
  if (queue.waiting.length >= queue.limit) return;
  queue.limit = 0;
  queue.limitEvents++;
}

/** The receive of a message that came to nothing: a receive queue uses it again for the next (§9.8.2.2). */
export function returnReceive(queue: ReceiveQueue, receive: ModelReceiveRequest): void {
  queue.waiting.unshift(receive);
}

/** A receive that failed before its message took it. */
export function dropReceive(queue: ReceiveQueue, receive: ModelReceiveRequest): void {
  if (queue.waiting.includes(receive)) {
    queue.waiting = queue.waiting.filter((other) => other !== receive);
    checkLimit(queue);
  }
}
