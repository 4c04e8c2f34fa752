/** The fate of a receive whose message cannot be delivered, where nothing is answered (IBTA vol 1 §9.9.3). */
import { dropReceive, type ReceiveQueue, returnReceive } from './receive-queue.ts';
import type { ModelCompletion, ModelReceiveRequest } from './work.ts';

/** The outcome of a packet of UC or UD. */
export interface Received {
  completions: ModelCompletion[];
  /** Why the packet had no effect, if it had none. */
  dropped?: string;
}

/**
 * A message that had begun to fill it is given up: its own queue's next message uses it again (class D1); one
 * of an SRQ cannot go back among the others and completes in error (class E).
 */
export function abandonReceive(queue: ReceiveQueue, receive: ModelReceiveRequest): ModelCompletion[] {
  if (queue.shared) return [{ wrId: receive.wrId, status: 'REM_INV_REQ_ERR' }];
  returnReceive(queue, receive);
  return [];
}

/** The receive itself is bad (for example its L_Key): it fails and takes the queue pair with it (class A). */
export function failOnReceive(queue: ReceiveQueue, receive: ModelReceiveRequest): ModelCompletion[] {
  dropReceive(queue, receive);
  return [{ wrId: receive.wrId, status: 'LOC_PROT_ERR' }];
}
