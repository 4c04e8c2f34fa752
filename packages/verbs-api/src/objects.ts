/** The objects of a device that events are about, and the events that wait to be taken. */
import type { AsyncEvent } from '@node-roce/transport';
import type { DeviceEvent, EventElement } from './async-events.ts';
import type { CompletionQueue } from './completion-queue.ts';
import { EventQueue } from './event-queue.ts';
import type { QueuePair } from './queue-pair.ts';
import { Registry } from './registry.ts';
import type { SharedReceiveQueue } from './shared-receive-queue.ts';
import type { XrcTarget } from './xrc-target.ts';

/** Destroying an object drops the events about it that wait. */
export class DeviceObjects {
  readonly events = new EventQueue<DeviceEvent>();
  readonly #drop = (object: EventElement): void =>
    this.events.discard((event) => 'element' in event && event.element === object);
  readonly qps = new Registry<QueuePair>(this.#drop);
  /** Openings of XRC target queue pairs, by their handles. */
  readonly targets = new Registry<XrcTarget>(this.#drop);
  readonly cqs = new Registry<CompletionQueue>(this.#drop);
  readonly srqs = new Registry<SharedReceiveQueue>(this.#drop);

  /** The device has ended: the destruction of objects waits for no acknowledgment any more. */
  end(): void {
    for (const registry of [this.qps, this.targets, this.cqs, this.srqs]) registry.end();
  }

  /** The queue pair with this number; of a target, the first opening. */
  queuePair(qpn: number): QueuePair | XrcTarget | undefined {
    const qp = this.qps.get(qpn);
    if (qp) return qp;
    for (const target of this.targets.values()) if (target.qpNum === qpn) return target;
    return undefined;
  }

  /** Adds the object that an event of the engine is about. */
  withElement(event: AsyncEvent): DeviceEvent {
    const { cqs, srqs } = this;
    const element =
      'qpn' in event ? this.queuePair(event.qpn) : 'cq' in event ? cqs.get(event.cq) : srqs.get(event.srq);
    return { ...event, element };
  }
}
