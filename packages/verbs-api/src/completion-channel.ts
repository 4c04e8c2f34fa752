/** Completion channels: one place to wait for the events of many completion queues. */
import { RoceError } from '@node-roce/transport';
import { EventQueue } from './async-events.ts';
import type { CompletionQueue } from './completion-queue.ts';
import { closedError } from './engine.ts';

/**
 * A completion channel (`struct ibv_comp_channel`). Made by `device.createCompChannel`; given to completion
 * queues as they are created. A queue that was asked to (`cq.requestNotify`) raises one event here at
 * its next completion; each event has to be acknowledged (`cq.ackEvents`) before the queue can go.
 */
export class CompletionChannel implements AsyncDisposable {
  readonly #events = new EventQueue<CompletionQueue>();
  readonly #queues = new Set<CompletionQueue>();
  readonly #onDestroy: (channel: CompletionChannel) => void;
  #destroyed = false;

  constructor(onDestroy: (channel: CompletionChannel) => void) {
    this.#onDestroy = onDestroy;
  }

  /** Completion queues that raise their events here (`refcnt`). */
  get users(): number {
    return this.#queues.size;
  }

  /** ibv_get_cq_event(3): the queue that raised the next event. Rejects with the signal's reason. */
  async getEvent({ signal }: { signal?: AbortSignal } = {}): Promise<CompletionQueue> {
    return taken(await this.#events.next(signal));
  }

  /** The same without waiting: undefined if there is no event (a channel in non-blocking mode). */
  pollEvent(): CompletionQueue | undefined {
    const cq = this.#events.poll();
    return cq && taken(cq);
  }

  /**
   * Queues as they raise events; ends with the channel. Each event is acknowledged as it is given, so that the
   * loop's body may destroy the queue.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<CompletionQueue, void> {
    while (!this.#destroyed) {
      let cq: CompletionQueue;
      try {
        cq = await this.getEvent();
      } catch (error) {
        if ((error as RoceError).code === 'ERR_ROCE_CLOSED') return;
        throw error;
      }
      cq.ackEvents(1);
      yield cq;
    }
  }

  /** For completion queues: they come, raise events, and go. @internal */
  add(cq: CompletionQueue): void {
    if (this.#destroyed) throw gone();
    this.#queues.add(cq);
  }
  /** @internal */
  raise(cq: CompletionQueue): void {
    this.#events.push(cq);
  }
  /** @internal */
  remove(cq: CompletionQueue): void {
    this.#queues.delete(cq);
    this.#events.discard((other) => other === cq);
  }

  /** The device is closed: whoever waits hears why. @internal */
  fail(reason: unknown): void {
    this.#events.fail(reason);
  }

  /** ibv_destroy_comp_channel(3): EBUSY while completion queues use it. */
  async destroy(): Promise<void> {
    if (this.#destroyed) return;
    if (this.#queues.size > 0) {
      throw new RoceError('ERR_ROCE_BUSY', `${this.#queues.size} completion queues use the channel`, {
        errno: 'EBUSY',
      });
    }
    this.#destroyed = true;
    this.#events.fail(gone());
    this.#onDestroy(this);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy();
  }
}

function taken(cq: CompletionQueue): CompletionQueue {
  cq.channelEvents.take();
  return cq;
}

const gone = (): RoceError => closedError('the completion channel is destroyed');
