/**
 * The engine as the verbs see it, wherever it runs. Control calls are commands by name with plain data,
 * so the same call works in this thread and across a port to another.
 */
import { randomFillSync } from 'node:crypto';
import type { Link, NetworkInterface } from '@node-roce/link';
import {
  Adapter,
  type AdapterCounts,
  type AdapterOptions,
  type AsyncEvent,
  type DeviceLimits,
  DOORBELL_RECV,
  type GidEntry,
  type QpAttr,
  Ring,
  type RingShape,
  RoceError,
} from '@node-roce/transport';
import { type Diagnostic, Diagnostics, listening } from './diagnostics.ts';
import { clock, Pump } from './pump.ts';

/** What the engine tells once, at the start. */
export interface EngineFacts {
  readonly gids: readonly GidEntry[];
  readonly activeMtu: number;
  readonly limits: DeviceLimits;
  readonly link: string;
  /** The engine's own thread has to turn its event loop for packets to come in. */
  readonly needsEventLoop: boolean;
  readonly interface: NetworkInterface | undefined;
  readonly limitations: readonly string[];
  readonly receiveBuffer: number;
  readonly doorbells: RingShape;
}

/** Control calls that are commands, with the adapter's own parameters but for the time. */
export interface Commands {
  allocPd(): number;
  deallocPd(pd: number): void;
  registerMr(...args: Parameters<Adapter['registerMr']>): ReturnType<Adapter['registerMr']>;
  deregisterMr(handle: number): void;
  reregisterMr(...args: Parameters<Adapter['reregisterMr']>): ReturnType<Adapter['reregisterMr']>;
  allocMw(...args: Parameters<Adapter['allocMw']>): ReturnType<Adapter['allocMw']>;
  deallocMw(handle: number): void;
  createCq(cqe: number): ReturnType<Adapter['createCq']>;
  resizeCq(handle: number, cqe: number): ReturnType<Adapter['resizeCq']>;
  destroyCq(handle: number): void;
  createSrq(...args: Parameters<Adapter['createSrq']>): ReturnType<Adapter['createSrq']>;
  modifySrq(...args: Parameters<Adapter['modifySrq']>): ReturnType<Adapter['modifySrq']>;
  querySrq(handle: number): ReturnType<Adapter['querySrq']>;
  destroySrq(handle: number): void;
  createAh(...args: Parameters<Adapter['createAh']>): number;
  destroyAh(handle: number): void;
  createQp(...args: Parameters<Adapter['createQp']>): ReturnType<Adapter['createQp']>;
  modifyQp(qpn: number, attr: Parameters<Adapter['modifyQp']>[1]): void;
  queryQp(qpn: number): ReturnType<Adapter['queryQp']>;
  destroyQp(qpn: number): void;
  attachMcast(qpn: number, group: Uint8Array): void;
  detachMcast(qpn: number, group: Uint8Array): void;
  counters(): AdapterCounts;
  qpCounters(qpn: number): ReturnType<Adapter['qpCounters']>;
  linkStats(): Record<string, number>;
  /** The interface got an address or lost it: the new GID table, undefined where that is the old one. */
  setAddress(address: string, present: boolean): GidEntry[] | undefined;
}
export type CommandName = keyof Commands;

export interface EngineEvents {
  onCompletionEvent(cq: number): void;
  /** For the channels; only while somebody listens. */
  onDiagnostics(told: Diagnostic[]): void;
  onAsyncEvent(event: AsyncEvent | { type: 'DEVICE_FATAL'; error: unknown }): void;
}

export interface Engine {
  readonly facts: EngineFacts;
  call<N extends CommandName>(name: N, ...args: Parameters<Commands[N]>): Promise<ReturnType<Commands[N]>>;
  /** Rings for a queue pair whose queue was found sleeping. */
  ring(qpn: number, recv: boolean): void;
  /** No more calls: closed, or dead. */
  readonly closed: boolean;
  /** Resolves when memory may have changed since the call: packets were taken in. */
  progress(): Promise<void>;
  /** Makes progress now for who polls this ring, where the engine is in this thread; else does nothing. */
  poll(ring: Ring): void;
  /** Whether it shares the thread with the program, so that plain ArrayBuffers can be registered. */
  readonly inline: boolean;
  ref(): void;
  unref(): void;
  close(): Promise<void>;
}

/** Runs a command by its name; throws as the adapter does. */
type RunCommand = (name: CommandName, args: unknown[]) => unknown;

/** The one list of what a command does. */
function execute(adapter: Adapter, link: Link, name: CommandName, args: unknown[]): unknown {
  if (name === 'linkStats') return link.stats();
  if (name === 'setAddress') {
    const changed = link.setAddress?.(args[0] as string, args[1] as boolean) ?? false;
    return changed ? [...link.gids] : undefined;
  }
  if (name === 'modifyQp') return adapter.modifyQp(args[0] as number, args[1] as QpAttr, clock());
  if (name === 'destroyQp') return adapter.destroyQp(args[0] as number, clock());
  return (adapter[name] as (...all: unknown[]) => unknown)(...args);
}

/** 32 random bits from the operating system's generator, a block at a time. */
export function systemRandom(): () => number {
  const block = new Uint32Array(64);
  let at = block.length;
  return () => {
    if (at === block.length) {
      randomFillSync(block);
      at = 0;
    }
    return block[at++];
  };
}

/** An adapter on a link, with its pump. */
export function assemble(
  link: Link,
  events: EngineEvents,
  options: Pick<AdapterOptions, 'credits' | 'limits'> = {},
  look = listening,
): { adapter: Adapter; pump: Pump; facts: EngineFacts; run: RunCommand } {
  const diagnostics = new Diagnostics(look, events.onDiagnostics);
  const adapter = new Adapter({
    ...options,
    random: systemRandom(),
    peers: diagnostics.peersOf(link),
    gids: link.gids,
    activeMtu: link.activeMtu,
    copy: link.copy,
    receiveBuffer: link.receiveBuffer,
    onCompletionEvent: events.onCompletionEvent,
    onAsyncEvent: events.onAsyncEvent,
    onStateChange: diagnostics.onStateChange,
    onRetransmit: diagnostics.onRetransmit,
  });
  const pump = new Pump(adapter, link, diagnostics);
  const facts: EngineFacts = {
    gids: link.gids,
    activeMtu: link.activeMtu,
    limits: adapter.limits,
    link: link.kind,
    needsEventLoop: link.needsEventLoop ?? false,
    interface: link.interface,
    limitations: link.limitations,
    receiveBuffer: link.receiveBuffer,
    doorbells: adapter.doorbells,
  };
  const run: RunCommand = (name, args) => {
    diagnostics.look();
    try {
      return execute(adapter, link, name, args);
    } finally {
      diagnostics.flush();
    }
  };
  return { adapter, pump, facts, run };
}

export function closedError(message = 'the device is closed'): RoceError {
  return new RoceError('ERR_ROCE_CLOSED', message, { errno: 'ECANCELED' });
}

/** Writes a doorbell. True if the pump sleeps and has to be woken. */
export function ringDoorbell(ring: Ring, qpn: number, recv: boolean): boolean {
  const at = ring.producer;
  ring.words[ring.wordOf(at)] = recv ? (qpn | DOORBELL_RECV) >>> 0 : qpn;
  ring.publish((at + 1) | 0);
  return ring.wakes();
}

/** The engine in the program's own thread. */
export class InlineEngine implements Engine {
  readonly inline = true;
  readonly facts: EngineFacts;
  readonly #run: RunCommand;
  readonly #pump: Pump;
  readonly #doorbells: Ring;
  closed = false;

  constructor(link: Link, events: EngineEvents, options?: Pick<AdapterOptions, 'credits' | 'limits'>) {
    const { run, pump, facts } = assemble(link, events, options);
    this.#run = run;
    this.#pump = pump;
    this.facts = facts;
    this.#doorbells = new Ring(facts.doorbells);
  }

  async call<N extends CommandName>(
    name: N,
    ...args: Parameters<Commands[N]>
  ): Promise<ReturnType<Commands[N]>> {
    if (this.closed) throw closedError();
    const result = this.#run(name, args) as ReturnType<Commands[N]>;
    if (name === 'modifyQp' || name === 'destroyQp') this.#pump.settle();
    return result;
  }

  ring(qpn: number, recv: boolean): void {
    if (ringDoorbell(this.#doorbells, qpn, recv)) this.#pump.wake();
  }

  progress(): Promise<void> {
    return this.#pump.progress();
  }

  poll(ring: Ring): void {
    // Traffic moves deadlines; the loop has to hear of them.
    if (this.#pump.turn(ring)) this.#pump.wake();
  }

  ref(): void {
    this.#pump.ref();
  }

  unref(): void {
    this.#pump.unref();
  }

  close(): Promise<void> {
    this.closed = true;
    return this.#pump.close();
  }
}
