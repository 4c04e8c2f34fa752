/** One place to wait for the events of many queues. */
import { RoceError } from '@node-roce/transport';
import { closedError } from './engine/engine.ts';
import { type AffiliatedEvents, EventQueue } from './event-queue.ts';
import { custom, line } from './inspect.ts';
import { checkWaitOptions } from './option-types.ts';

/** The parts of its completion queues that a channel needs. */
export interface NotifyingQueue {
  /** Events that were taken and not acknowledged. @internal */
  readonly channelEvents: AffiliatedEvents;
  /** Acknowledges events. */
  ackEvents(count: number): void;
}

/** A channel: queues raise events here, a program takes them (`CompletionChannel`). */
export class EventChannel<Queue extends NotifyingQueue> implements AsyncDisposable {
  /** None is dropped: a queue raises its next event only after the program has asked for it. */
  readonly #events = new EventQueue<Queue>(Number.POSITIVE_INFINITY);
  readonly #queues = new Set<Queue>();
  readonly #onDestroy: (channel: EventChannel<Queue>) => void;
  #destroyed = false;

  constructor(onDestroy: (channel: EventChannel<Queue>) => void) {
    this.#onDestroy = onDestroy;
  }

  /** Completion queues that raise their events here (`refcnt`). */
  get users(): number {
    return this.#queues.size;
  }

  /** ibv_get_cq_event(3): the queue that raised the next event. Rejects with the signal's reason. */
  async getEvent(options: { signal?: AbortSignal } = {}): Promise<Queue> {
    checkWaitOptions(options);
    return taken(await this.#events.next(options.signal));
  }

  /** The same without waiting: undefined if there is no event (a channel in non-blocking mode). */
  pollEvent(): Queue | undefined {
    const cq = this.#events.poll();
    return cq && taken(cq);
  }

  /**
   * Queues as they raise events; ends with the channel. Each event is acknowledged as it is given, so that the
   * loop's body may destroy the queue.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<Queue, void> {
    while (!this.#destroyed) {
      let cq: Queue;
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
  add(cq: Queue): void {
    if (this.#destroyed) throw gone();
    this.#queues.add(cq);
  }
  /** @internal */
  raise(cq: Queue): void {
    this.#events.push(cq);
  }
  /** @internal */
  remove(cq: Queue): void {
    this.#queues.delete(cq);
    this.#events.discard((other) => other === cq);
  }

  /** The device is closed: waiting calls reject with the cause. @internal */
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

  /** @internal */
  [custom](): string {
    return line('CompletionChannel', { users: this.users });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy();
  }
}

function taken<Queue extends NotifyingQueue>(cq: Queue): Queue {
  cq.channelEvents.take();
  return cq;
}

const gone = (): RoceError => closedError('the completion channel is destroyed');
