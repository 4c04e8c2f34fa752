/** Asynchronous events (ibv_get_async_event(3)): what they are about, and their acknowledgment. */
import type { AsyncEvent } from '@node-roce/transport';
import type { CompletionQueue } from './completion-queue.ts';
import type { QueuePair } from './queue-pair.ts';
import type { SharedReceiveQueue } from './shared-receive-queue.ts';
import type { XrcTarget } from './xrc-target.ts';

/** The port's state or its table of GIDs changed. */
export interface PortEvent {
  /** The port came up, went down, or has other addresses. */
  type: 'PORT_ACTIVE' | 'PORT_ERR' | 'GID_CHANGE';
  /** The one port. */
  portNum: 1;
}

/** The object of an event; `undefined` where the program has let go of it meanwhile. */
export type EventElement = QueuePair | XrcTarget | CompletionQueue | SharedReceiveQueue;

/**
 * Unsolicited events of the device (`struct ibv_async_event`): about a queue (`element`, and its number), about
 * the port, or its own end.
 */
export type DeviceEvent =
  | (AsyncEvent & { element?: EventElement })
  | PortEvent
  | { type: 'DEVICE_FATAL'; error: unknown };

/** An event that a program has taken with `device.getEvent`, and the function that acknowledges it. */
export interface TakenEvent {
  /** The type of the event. */
  readonly event: DeviceEvent;
  /** ibv_ack_async_event(3); once counts. Until then the destruction of what it is about waits. */
  ack(): void;
}

/** Hands an event out: it holds what it is about until it is acknowledged. */
export function takeEvent(event: DeviceEvent): TakenEvent {
  let held = 'element' in event ? event.element?.asyncEvents : undefined;
  held?.take();
  return {
    event,
    ack() {
      held?.acknowledge();
      held = undefined;
    },
  };
}
