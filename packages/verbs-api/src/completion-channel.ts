/** Completion channels: where the events of many completion queues are waited for. */
import type { CompletionQueue } from './completion-queue.ts';
import { EventChannel } from './event-channel.ts';

/**
 * A completion channel (`struct ibv_comp_channel`). Made by `device.createCompChannel`; given to completion
 * queues as they are created. A queue that was asked to (`cq.requestNotify`) raises one event here at
 * its next completion; each event has to be acknowledged (`cq.ackEvents`) before the queue can go.
 */
export class CompletionChannel extends EventChannel<CompletionQueue> {}
