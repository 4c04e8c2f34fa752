/**
 * One engine for several contexts (`struct ibv_context`): each has its own objects, and its view of the engine ends
 * without the others'. The engine closes with the last one.
 */
import type { CmEvent } from '@node-roce/cm';
import type { AsyncEvent, Ring, RingFactory } from '@node-roce/transport';
import type { PortEvent } from './async-events.ts';
import type { Diagnostic } from './diagnostics.ts';
import {
  type CommandName,
  type Commands,
  closedError,
  type Engine,
  type EngineEvents,
  type OwnEngine,
} from './engine.ts';
import { PortWatch } from './port-watch.ts';
import type { Attached, WorkSource } from './pump.ts';

export type EngineEvent = AsyncEvent | { type: 'DEVICE_FATAL'; error: unknown };

/** The events of the engine and its port that a context gets. */
export interface ContextListener extends EngineEvents {
  onPortEvent(event: PortEvent): void;
}

/** Takes the engine's events to the contexts, which exist only after the engine. */
export class EventHub implements EngineEvents {
  readonly contexts = new Set<EngineContext>();

  readonly onCompletionEvent = (cq: number): void => {
    for (const { listener } of this.contexts) listener?.onCompletionEvent(cq);
  };

  readonly onAsyncEvent = (event: EngineEvent): void => {
    for (const context of this.contexts) if (context.concerns(event)) context.listener?.onAsyncEvent(event);
  };

  readonly onCmEvent = (event: CmEvent): void => {
    for (const context of this.contexts)
      if (context.connections.concerns(event)) context.listener?.onCmEvent(event);
  };

  /** Each is published once: by the context of the queue pair, or by the first. */
  readonly onDiagnostics = (told: Diagnostic[]): void => {
    const [first] = this.contexts;
    for (const context of this.contexts) {
      const own = told.filter(({ message }) => (this.#ownerOf(message.qpn) ?? first) === context);
      if (own.length > 0) context.listener?.onDiagnostics(own);
    }
  };

  #ownerOf(qpn: number): EngineContext | undefined {
    if (this.contexts.size === 1) return undefined;
    return [...this.contexts].find((context) => context.concerns({ type: 'COMM_EST', qpn }));
  }
}

/** An engine, its port, and the contexts that are open on it. */
export class SharedEngine {
  readonly engine: OwnEngine;
  readonly #hub: EventHub;
  readonly #port: PortWatch;
  /** Contexts that are not closed and not closing: the last of them closes the engine. */
  readonly #open = new Set<EngineContext>();

  /** Watches the port of an engine; closes the engine if that fails. */
  static async open(engine: OwnEngine, hub: EventHub): Promise<SharedEngine> {
    try {
      return new SharedEngine(engine, hub, await PortWatch.open(engine));
    } catch (error) {
      await engine.close();
      throw error;
    }
  }

  private constructor(engine: OwnEngine, hub: EventHub, port: PortWatch) {
    this.engine = engine;
    this.#hub = hub;
    this.#port = port;
    port.onEvent = (event) => {
      for (const { listener } of hub.contexts) listener?.onPortEvent(event);
    };
  }

  /** Another context. */
  context(): EngineContext {
    if (this.engine.closed) throw closedError();
    const context = new EngineContext(this);
    this.#hub.contexts.add(context);
    this.#open.add(context);
    return context;
  }

  /** Ends a context. Resolves when its objects, and with the last context the engine, are gone. */
  async leave(context: EngineContext, release: () => Promise<void>): Promise<void> {
    const { contexts } = this.#hub;
    this.#open.delete(context);
    if (this.#open.size > 0) {
      try {
        if (!this.engine.closed) await release();
      } finally {
        contexts.delete(context);
        // An engine that closes meanwhile holds the process until it has closed.
        if (!this.engine.closed) this.refer();
      }
      return;
    }
    this.#port.close();
    try {
      await this.engine.close();
    } finally {
      contexts.delete(context);
    }
  }

  /** Keeps the process alive while one of the contexts wants that. */
  refer(): void {
    const wanted = [...this.#hub.contexts].some((context) => context.referred);
    if (wanted) this.engine.ref();
    else this.engine.unref();
  }
}

/** Objects in the order in which they can be destroyed, with the commands that create and destroy them. */
const KINDS = [
  { created: 'createQp', destroyed: 'destroyQp' },
  { created: 'openXrcTarget', destroyed: 'closeXrcTarget' },
  { created: 'allocMw', destroyed: 'deallocMw' },
  { created: 'registerMr', destroyed: 'deregisterMr' },
  { created: 'createSrq', destroyed: 'destroySrq' },
  { created: 'openXrcd', destroyed: 'closeXrcd' },
  { created: 'createAh', destroyed: 'destroyAh' },
  { created: 'createCq', destroyed: 'destroyCq' },
  { created: 'allocPd', destroyed: 'deallocPd' },
] as const;
type Created = (typeof KINDS)[number]['created'];
type Destroyed = (typeof KINDS)[number]['destroyed'];

/** The number by which the engine knows a new object. */
function numberOf(result: unknown): number {
  if (typeof result === 'number') return result;
  const { qpn, handle } = result as { qpn?: number; handle?: number };
  return (handle ?? qpn)!;
}

/** Listeners and connections of one context, by the connection manager's numbers. */
class OwnConnections {
  readonly listeners = new Set<number>();
  readonly ids = new Set<number>();

  /** Whether an event is about one of them; a request is then one of them, too. */
  concerns(event: CmEvent): boolean {
    if (event.type === 'request' || event.type === 'datagram-request') {
      if (!this.listeners.has(event.listener)) return false;
      this.ids.add(event.id);
      return true;
    }
    return this.ids.has(event.id);
  }
}

/** Objects, groups and connections of one context, by the engine's numbers. */
class Owned {
  readonly objects: Record<Created, Set<number>> = {
    createQp: new Set(),
    openXrcTarget: new Set(),
    openXrcd: new Set(),
    allocMw: new Set(),
    registerMr: new Set(),
    createSrq: new Set(),
    createAh: new Set(),
    createCq: new Set(),
    allocPd: new Set(),
  };
  /** QPNs of targets, by the handles of their openings. */
  readonly targets = new Map<number, number>();
  /** Attached queue pairs, by QPN and group. */
  readonly groups = new Map<string, { qpn: number; group: Uint8Array }>();
  readonly connections = new OwnConnections();
}

type Note = (owned: Owned, args: readonly unknown[], result: unknown) => void;

/** Changes of it by a command that was carried out. */
const NOTES: ReadonlyMap<CommandName, Note> = new Map<CommandName, Note>([
  ...KINDS.flatMap(({ created, destroyed }): [CommandName, Note][] => [
    [created, ({ objects }, _, result) => objects[created].add(numberOf(result))],
    [destroyed, ({ objects }, [number]) => objects[created].delete(number as number)],
  ]),
  // `deregisterMr` takes them back, as regions of memory.
  ['allocNullMr', ({ objects }, _, result) => objects.registerMr.add(numberOf(result))],
  [
    'openXrcTarget',
    ({ objects, targets }, _, result) => {
      const { handle, qpn } = result as { handle: number; qpn: number };
      objects.openXrcTarget.add(handle);
      targets.set(handle, qpn);
    },
  ],
  [
    'closeXrcTarget',
    ({ objects, targets }, [handle]) => {
      objects.openXrcTarget.delete(handle as number);
      targets.delete(handle as number);
    },
  ],
  ['cmListen', ({ connections }, _, result) => connections.listeners.add(result as number)],
  ['cmConnect', ({ connections }, _, result) => connections.ids.add(result as number)],
  ['cmResolve', ({ connections }, _, result) => connections.ids.add(result as number)],
  ['cmUnlisten', ({ connections }, [listener]) => connections.listeners.delete(listener as number)],
  ['cmDestroy', ({ connections }, [id]) => connections.ids.delete(id as number)],
  [
    'attachMcast',
    ({ groups }, args) => {
      const [qpn, group] = args as [number, Uint8Array];
      groups.set(`${qpn} ${group}`, { qpn, group });
    },
  ],
  ['detachMcast', ({ groups }, [qpn, group]) => groups.delete(`${qpn} ${group}`)],
]);

/** The engine as one context sees it. */
export class EngineContext implements Engine {
  readonly #shared: SharedEngine;
  readonly #engine: OwnEngine;
  readonly #owned = new Owned();
  listener: ContextListener | undefined;
  /** Where rings of its objects are made; the engine's own memory unless set. */
  rings: RingFactory | undefined;
  /** Whether it keeps the process alive. */
  referred = true;
  /** Commands of an engine in another thread that have no answer yet. */
  readonly #underWay = new Set<Promise<unknown>>();
  #closing: Promise<void> | undefined;

  constructor(shared: SharedEngine) {
    this.#shared = shared;
    this.#engine = shared.engine;
  }

  get facts(): Engine['facts'] {
    return this.#engine.facts;
  }

  get inline(): boolean {
    return this.#engine.inline;
  }

  get connections(): OwnConnections {
    return this.#owned.connections;
  }

  get closed(): boolean {
    return this.#closing !== undefined || this.#engine.closed;
  }

  /** Another context of the same device. */
  sibling(): EngineContext {
    if (this.closed) throw closedError();
    return this.#shared.context();
  }

  /** Whether an event is about the device or about an object of this context. */
  concerns(event: EngineEvent): boolean {
    const { objects } = this.#owned;
    if ('qpn' in event) {
      if (objects.createQp.has(event.qpn)) return true;
      for (const qpn of this.#owned.targets.values()) if (qpn === event.qpn) return true;
      return false;
    }
    if ('cq' in event) return objects.createCq.has(event.cq);
    if ('srq' in event) return objects.createSrq.has(event.srq);
    return true;
  }

  async call<N extends CommandName>(
    name: N,
    ...args: Parameters<Commands[N]>
  ): Promise<ReturnType<Commands[N]>> {
    // An engine that failed rejects the call itself.
    if (this.#closing !== undefined) throw closedError();
    const answer = this.#engine.execute(name, this.#withRings(name, args));
    if (!(answer instanceof Promise)) return this.#noted(name, args, answer);
    const noted = answer.then((result) => this.#noted(name, args, result));
    this.#underWay.add(noted);
    try {
      return await noted;
    } finally {
      this.#underWay.delete(noted);
    }
  }

  #noted<R>(name: CommandName, args: readonly unknown[], result: R): R {
    NOTES.get(name)?.(this.#owned, args, result);
    return result;
  }

  #withRings<N extends CommandName>(name: N, args: Parameters<Commands[N]>): Parameters<Commands[N]> {
    const { rings } = this;
    if (rings === undefined) return args;
    if (name === 'createCq')
      return [args[0], args[1], rings.completions] as unknown as Parameters<Commands[N]>;
    if (name === 'createQp' || name === 'createSrq')
      return [{ ...(args[0] as object), newRing: rings.work }] as unknown as Parameters<Commands[N]>;
    return args;
  }

  ring(qpn: number, recv: boolean): void {
    this.#engine.ring(qpn, recv);
  }

  attach(source: WorkSource): Attached {
    return this.#engine.attach(source);
  }

  progress(): Promise<void> {
    return this.#engine.progress();
  }

  poll(ring: Ring): void {
    this.#engine.poll(ring);
  }

  ref(): void {
    this.referred = true;
    this.#shared.refer();
  }

  unref(): void {
    this.referred = false;
    this.#shared.refer();
  }

  close(): Promise<void> {
    this.#closing ??= this.#leave();
    return this.#closing;
  }

  async #leave(): Promise<void> {
    try {
      await this.#shared.leave(this, () => this.#release());
    } finally {
      // A program that has ended may keep the context, but not the memory of its rings.
      this.rings = undefined;
    }
  }

  /** Destroys the objects of this context in an engine that goes on. */
  async #release(): Promise<void> {
    // Not from inside of a post, where a getter of the request has closed the device.
    await Promise.resolve();
    // The objects that these create are destroyed, too.
    await Promise.allSettled(this.#underWay);
    const ignore = () => {}; // Left or destroyed before.
    for (const listener of this.connections.listeners)
      await this.#engine.call('cmUnlisten', listener).catch(ignore);
    for (const id of this.connections.ids) await this.#engine.call('cmDestroy', id).catch(ignore);
    for (const { qpn, group } of this.#owned.groups.values())
      await this.#engine.call('detachMcast', qpn, group).catch(ignore);
    for (const { created, destroyed } of KINDS) {
      for (const number of this.#owned.objects[created]) await this.#destroy(destroyed, number).catch(ignore);
    }
  }

  #destroy(name: Destroyed, number: number): Promise<unknown> {
    return this.#engine.call(name, number);
  }
}
