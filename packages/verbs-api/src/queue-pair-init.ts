/** The creation of a queue pair: what it consists of, and what a query returns of it. */
import type { QpCap, QpCreated, QpType } from '@node-roce/transport';
import type { CompletionQueue } from './completion-queue.ts';
import type { Engine } from './engine/engine.ts';
import type { FindRegion } from './posting/work-request.ts';
import type { SharedReceiveQueue } from './shared-receive-queue.ts';

/** `struct ibv_qp_init_attr` as a query returns it, with the objects themselves. */
export interface QueuePairInitAttr {
  /** RC, UC, UD, GSI, RAW_PACKET or XRC_INI. */
  type: QpType;
  /** Where send requests complete. */
  sendCq: CompletionQueue;
  /** Where receives complete. */
  recvCq: CompletionQueue;
  /** Where its receives come from, if not from a receive queue of its own. */
  srq: SharedReceiveQueue | undefined;
  /** The result of the creation. */
  cap: QpCap;
  /** Every send request raises a completion. */
  sqSigAll: boolean;
  /** The program's value, given at creation (`qp_context`). */
  context: unknown;
}

/** The parts of a queue pair that the engine has created. */
export interface CreatedQueuePair {
  engine: Engine;
  type: QpType;
  created: QpCreated;
  sendCq: CompletionQueue;
  recvCq: CompletionQueue;
  srq: SharedReceiveQueue | undefined;
  context: unknown;
  find: FindRegion;
  random: () => number;
}
