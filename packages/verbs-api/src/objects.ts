/**
 * The objects of a device by the engine's numbers, to find the one that an event is about, and the events
 * that nobody has taken yet, which go with their object.
 */
import { type DeviceEvent, EventQueue } from './async-events.ts';
import type { CompletionQueue } from './completion-queue.ts';
import type { QueuePair } from './queue-pair.ts';
import type { SharedReceiveQueue } from './shared-receive-queue.ts';

export class DeviceObjects {
  readonly qps = new Map<number, QueuePair>();
  readonly cqs = new Map<number, CompletionQueue>();
  readonly srqs = new Map<number, SharedReceiveQueue>();
  readonly events = new EventQueue<DeviceEvent>();

  /** An object was destroyed: it is forgotten, and so is what was still to be told about it. */
  removed(map: 'qps' | 'cqs' | 'srqs', number: number): void {
    const object = this[map].get(number);
    this[map].delete(number);
    this.events.discard((event) => 'element' in event && event.element === object);
  }
}
