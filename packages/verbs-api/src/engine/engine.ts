/**
 * The engine as the verbs see it, wherever it runs. Control calls are commands by name (`commands.ts`) with plain data,
 * so the same call works in this thread and across a port to another.
 */
import type { CmEvent } from '@node-roce/cm';
import type { NetworkInterface } from '@node-roce/link';
import {
  type AsyncEvent,
  type DeviceLimits,
  DOORBELL_RECV,
  type Experimental,
  type GidEntry,
  type ResidueClass,
  type Ring,
  type RingShape,
  RoceError,
} from '@node-roce/transport';
import type { Diagnostic } from '../diagnostics.ts';
import type { CommandName, Commands } from './commands.ts';
import type { Attached, WorkSource } from './serving.ts';

/** The facts that the engine reports once, at the start. */
export interface EngineFacts {
  readonly gids: readonly GidEntry[];
  readonly activeMtu: number;
  /** Whether ACKs carry the count of posted receives. */
  readonly credits: boolean;
  readonly limits: DeviceLimits;
  readonly experimental: readonly Experimental[];
  readonly link: string;
  /** UDP port that packets go to and come in at. */
  readonly port: number;
  /** The engine's own thread has to turn its event loop for packets to come in. */
  readonly needsEventLoop: boolean;
  readonly interface: NetworkInterface | undefined;
  /** The link has whole frames of the interface. */
  readonly rawPackets: boolean;
  readonly limitations: readonly string[];
  readonly receiveBuffer: number;
  readonly doorbells: RingShape;
  /** Of a device that shares its address: the class that its numbers are drawn from. */
  readonly numbers?: ResidueClass | undefined;
}

export interface EngineEvents {
  onCompletionEvent(cq: number): void;
  /** For the channels; only while somebody listens. */
  onDiagnostics(told: Diagnostic[]): void;
  onAsyncEvent(event: AsyncEvent | { type: 'DEVICE_FATAL'; error: unknown }): void;
  /** Of the connection manager. */
  onCmEvent(event: CmEvent): void;
}

export interface Engine {
  readonly facts: EngineFacts;
  call<N extends CommandName>(name: N, ...args: Parameters<Commands[N]>): Promise<ReturnType<Commands[N]>>;
  /** Rings for a queue pair whose queue was found sleeping. */
  readonly ring: (qpn: number, recv: boolean) => void;
  /** No more calls: closed, or dead. */
  readonly closed: boolean;
  /** Resolves when memory may have changed since the call: packets were taken in. */
  progress(): Promise<void>;
  /** Makes progress now for who polls this ring, where the engine is in this thread; else does nothing. */
  readonly poll: (ring: Ring) => void;
  /** Whether it shares the thread with the program, so that plain ArrayBuffers can be registered. */
  readonly inline: boolean;
  ref(): void;
  unref(): void;
  close(): Promise<void>;
}

/** An engine of its own, not a context's view of one. */
export interface OwnEngine extends Engine {
  /** Reads requests that another process posts, from now on; EOPNOTSUPP in another thread. */
  attach(source: WorkSource): Attached;
  /**
   * As `call`, but with the result itself, and its errors thrown, where the engine is in this thread: a context notes
   * what was created without a turn of the microtasks.
   */
  execute<N extends CommandName>(
    name: N,
    args: Parameters<Commands[N]>,
  ): ReturnType<Commands[N]> | Promise<ReturnType<Commands[N]>>;
}

export function closedError(message = 'the device is closed'): RoceError {
  return new RoceError('ERR_ROCE_CLOSED', message, { errno: 'ECANCELED' });
}

/** Writes a doorbell. True if the pump sleeps and has to be woken. */
export function ringDoorbell(ring: Ring, qpn: number, recv: boolean): boolean {
  const at = ring.producer;
  ring.words[ring.wordOf(at)] = recv ? (qpn | DOORBELL_RECV) >>> 0 : qpn;
  ring.publish((at + 1) | 0);
  return ring.wake();
}
