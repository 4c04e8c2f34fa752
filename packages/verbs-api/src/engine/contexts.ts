/**
 * One engine for several contexts (`struct ibv_context`): each has its own objects, and its view of the engine ends
 * without the others'. The engine closes with the last one.
 */
import type { CmEvent } from '@node-roce/cm';
import type { AsyncEvent, QpAttr, RingFactory } from '@node-roce/transport';
import type { PortEvent } from '../async-events.ts';
import type { Diagnostic } from '../diagnostics.ts';
import { type CommandName, type Commands, rowOf } from './commands.ts';
import { closedError, type Engine, type EngineEvents, type OwnEngine } from './engine.ts';
import { Owned } from './owned.ts';
import { PortWatch } from './port-watch.ts';
import type { Attached, WorkSource } from './serving.ts';

export type EngineEvent = AsyncEvent | { type: 'DEVICE_FATAL'; error: unknown };

/** The events of the engine and its port that a context gets. */
export interface ContextListener extends EngineEvents {
  onPortEvent(event: PortEvent): void;
  /** A context has modified a queue pair, which others may have open, too. */
  onModified(qpn: number, attr: QpAttr): void;
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
    for (const context of this.contexts) if (context.takesEvent(event)) context.listener?.onCmEvent(event);
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

  /** One of the contexts has modified a queue pair. */
  modified(qpn: number, attr: QpAttr): void {
    for (const { listener } of this.#hub.contexts) listener?.onModified(qpn, attr);
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

/** The engine as one context sees it. */
export class EngineContext implements Engine {
  readonly #shared: SharedEngine;
  readonly #engine: OwnEngine;
  readonly #owned = new Owned();
  /** The engine's own: who posts or polls does not come by here. */
  readonly ring: Engine['ring'];
  readonly poll: Engine['poll'];
  listener: ContextListener | undefined;
  /** Where rings of its objects are made; the engine's own memory unless set. */
  rings: RingFactory | undefined;
  /** Whether it keeps the process alive. */
  referred = true;
  /** Commands of an engine in another thread that have no answer yet. */
  readonly #underWay = new Set<Promise<unknown>>();
  #closing: Promise<void> | undefined;
  /** Calls of `progress`, which the end of this context ends, too. */
  #watchers: (() => void)[] = [];

  constructor(shared: SharedEngine) {
    this.#shared = shared;
    this.#engine = shared.engine;
    this.ring = shared.engine.ring;
    this.poll = shared.engine.poll;
  }

  get facts(): Engine['facts'] {
    return this.#engine.facts;
  }

  get inline(): boolean {
    return this.#engine.inline;
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
    if ('qpn' in event) return this.#owned.hasQueuePair(event.qpn);
    if ('cq' in event) return this.#owned.has('completionQueue', event.cq);
    if ('srq' in event) return this.#owned.has('sharedReceiveQueue', event.srq);
    return true;
  }

  /** Whether an event of the connection manager is for this context; the connection of a request is then one of its own. */
  takesEvent(event: CmEvent): boolean {
    return this.#owned.takesEvent(event);
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
    this.#owned.created(name, args, result);
    this.#owned.destroyed(name, args);
    if (name === 'modifyQp') this.#shared.modified(...(args as Parameters<Commands['modifyQp']>));
    return result;
  }

  #withRings<N extends CommandName>(name: N, args: Parameters<Commands[N]>): Parameters<Commands[N]> {
    if (this.rings === undefined) return args;
    return (rowOf(name).withRings?.(args, this.rings) ?? args) as Parameters<Commands[N]>;
  }

  attach(source: WorkSource): Attached {
    return this.#engine.attach(source);
  }

  progress(): Promise<void> {
    return new Promise((resolve) => {
      this.#watchers.push(resolve);
      if (this.#watchers.length === 1) void this.#engine.progress().then(() => this.#moved());
    });
  }

  #moved(): void {
    for (const resolve of this.#watchers.splice(0)) resolve();
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
    this.#moved();
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
    for (const [name, args] of this.#owned.destruction()) {
      await this.#engine.call(name, ...(args as Parameters<Commands[CommandName]>)).catch(ignore);
    }
  }
}
