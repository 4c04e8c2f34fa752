/** Typed subscriptions to the channels of node:diagnostics_channel. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Device } from './device.ts';
import type { PacketInfo, Retransmission, StateChange } from './diagnostics.ts';
import { checkArgument, FUNCTION, oneOf } from './options.ts';

/** The payload of each channel; the channel's name is `node-roce:` and this. */
export interface DiagnosticMessages {
  /** A packet was received, or given to the link. */
  packet: PacketInfo & { device: Device };
  /** A queue pair went to another state. */
  state: StateChange & { device: Device };
  /** A request packet is retransmitted. */
  retransmission: Retransmission & { device: Device };
}

const CHANNEL_NAMES = oneOf('packet', 'state', 'retransmission');

/** Calls back for each message of a channel, of all devices; returns a function that ends it. */
export function subscribeDiagnostics<K extends keyof DiagnosticMessages>(
  channel: K,
  listener: (message: DiagnosticMessages[K]) => void,
): () => void {
  checkArgument('channel', channel, CHANNEL_NAMES);
  checkArgument('listener', listener, FUNCTION);
  const name = `node-roce:${channel}`;
  const onMessage = (message: unknown) => listener(message as DiagnosticMessages[K]);
  subscribe(name, onMessage);
  return () => void unsubscribe(name, onMessage);
}
