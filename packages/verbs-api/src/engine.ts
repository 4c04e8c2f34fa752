/**
 * The engine as the verbs see it, wherever it runs. Control calls are commands by name with plain data,
 * so the same call works in this thread and across a port to another.
 */
import { randomFillSync } from 'node:crypto';
import type { CmEvent, Connections } from '@node-roce/cm';
import type { Link, NetworkInterface } from '@node-roce/link';
import {
  Adapter,
  type AdapterCounts,
  type AdapterOptions,
  type AsyncEvent,
  type CqContents,
  type DeviceLimits,
  DOORBELL_RECV,
  type Experimental,
  type GidEntry,
  type QpInit,
  type ResidueClass,
  Ring,
  type RingShape,
  RoceError,
  type SrqOp,
} from '@node-roce/transport';
import { type Diagnostic, Diagnostics, listening } from './diagnostics.ts';
import { Management, type ManagementReport } from './management.ts';
import { type Attached, clock, clockOrigin, Pump, type WorkSource } from './pump.ts';

/** The facts that the engine reports once, at the start. */
export interface EngineFacts {
  readonly gids: readonly GidEntry[];
  readonly activeMtu: number;
  /** Whether ACKs carry the count of posted receives. */
  readonly credits: boolean;
  readonly limits: DeviceLimits;
  readonly experimental: readonly Experimental[];
  readonly link: string;
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

/** Control calls that are commands, with the adapter's own parameters. */
export interface Commands {
  allocPd(): number;
  deallocPd(pd: number): void;
  registerMr(...args: Parameters<Adapter['registerMr']>): ReturnType<Adapter['registerMr']>;
  allocNullMr(...args: Parameters<Adapter['allocNullMr']>): ReturnType<Adapter['allocNullMr']>;
  deregisterMr(handle: number): void;
  reregisterMr(...args: Parameters<Adapter['reregisterMr']>): ReturnType<Adapter['reregisterMr']>;
  allocMw(...args: Parameters<Adapter['allocMw']>): ReturnType<Adapter['allocMw']>;
  deallocMw(handle: number): void;
  createCq(...args: Parameters<Adapter['createCq']>): ReturnType<Adapter['createCq']>;
  resizeCq(handle: number, cqe: number): ReturnType<Adapter['resizeCq']>;
  destroyCq(handle: number): void;
  createSrq(...args: Parameters<Adapter['createSrq']>): ReturnType<Adapter['createSrq']>;
  modifySrq(...args: Parameters<Adapter['modifySrq']>): ReturnType<Adapter['modifySrq']>;
  querySrq(handle: number): ReturnType<Adapter['querySrq']>;
  postSrqOp(handle: number, op: SrqOp): number;
  destroySrq(handle: number): void;
  openXrcd(...args: Parameters<Adapter['openXrcd']>): number;
  closeXrcd(handle: number): void;
  /** An opening of a target queue pair; without a number, of a new one. */
  openXrcTarget(domain: number, qpn: number | undefined): ReturnType<Adapter['openXrcTarget']>;
  closeXrcTarget(handle: number): void;
  createAh(...args: Parameters<Adapter['createAh']>): number;
  destroyAh(handle: number): void;
  createQp(...args: Parameters<Adapter['createQp']>): ReturnType<Adapter['createQp']>;
  modifyQp(qpn: number, attr: Parameters<Adapter['modifyQp']>[1]): ReturnType<Adapter['modifyQp']>;
  acknowledgeAhead(qpn: number): void;
  queryQp(qpn: number): ReturnType<Adapter['queryQp']>;
  destroyQp(qpn: number): void;
  setFrameFilter(...args: Parameters<Adapter['setFrameFilter']>): ReturnType<Adapter['setFrameFilter']>;
  frameCounts(qpn: number): ReturnType<Adapter['frameCounts']>;
  attachMcast(qpn: number, group: Uint8Array): void;
  detachMcast(qpn: number, group: Uint8Array): void;
  counters(): AdapterCounts;
  qpCounters(qpn: number): ReturnType<Adapter['qpCounters']>;
  linkStats(): Record<string, number>;
  /** The interface got an address or lost it: the new GID table, undefined where that is the old one. */
  setAddress(address: string, present: boolean): GidEntry[] | undefined;
  // The connection manager's, with its own parameters but for the time.
  cmListen(...args: Parameters<Connections['listen']>): number;
  cmUnlisten(listener: number): void;
  cmConnect(init: Parameters<Connections['connect']>[0]): number;
  cmAccept(id: number, init: Parameters<Connections['accept']>[1]): void;
  cmReady(...args: Parameters<Connections['ready']>): void;
  cmReject(id: number, init: Parameters<Connections['reject']>[1]): void;
  cmDisconnect(id: number, privateData?: Uint8Array): void;
  cmDestroy(id: number): void;
  cmLoadPath(id: number, path: Parameters<Connections['loadPath']>[1]): void;
  cmAnswerPath(...args: Parameters<Connections['answerPath']>): void;
  cmRequestOf(id: number): ReturnType<Connections['requestOf']>;
  cmResolve(init: Parameters<Connections['resolve']>[0]): number;
  cmAnswer(...args: Parameters<Connections['answer']>): void;
  /** Whether the ACKs of a queue pair carry credits: both sides of its connection asked for that. */
  cmSetCredits(qpn: number, credits: boolean): void;
  cmCounters(): ManagementReport;
}
export type CommandName = keyof Commands;

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

/** Runs a command by its name; throws as the adapter does. */
type RunCommand = (name: CommandName, args: unknown[]) => unknown;

/** The commands of the connection manager. */
const CM_COMMANDS = {
  cmListen: ({ connections }, ...args) => connections.listen(...args),
  cmUnlisten: ({ connections }, listener) => connections.unlisten(listener, clock()),
  cmConnect: ({ connections }, init) => connections.connect(init, clock()),
  cmAccept: ({ connections }, id, init) => connections.accept(id, init, clock()),
  cmReady: ({ connections }, ...args) => connections.ready(...args),
  cmReject: ({ connections }, id, init) => connections.reject(id, init, clock()),
  cmDisconnect: ({ connections }, id, data) => connections.disconnect(id, clock(), data),
  cmDestroy: ({ connections }, id) => connections.destroy(id, clock()),
  cmLoadPath: ({ connections }, id, path) => connections.loadPath(id, path, clock()),
  cmAnswerPath: ({ connections }, ...args) => connections.answerPath(...args),
  cmRequestOf: ({ connections }, id) => connections.requestOf(id),
  cmResolve: ({ connections }, init) => connections.resolve(init, clock()),
  cmAnswer: ({ connections }, ...args) => connections.answer(...args),
  cmSetCredits: (management, qpn, credits) => management.setCredits(qpn, credits),
  cmCounters: (management) => management.report(),
} satisfies {
  [N in CommandName & `cm${string}`]: (
    management: Management,
    ...args: Parameters<Commands[N]>
  ) => ReturnType<Commands[N]>;
};

/** Queue pair 1, which either the connection manager has or the program. */
interface GeneralServices {
  /** Opens it for the connection manager; EBUSY where the program has it. */
  open(): Management;
  /** Takes it from a connection manager that has nothing to do. */
  release(): void;
}

/** The one list of commands and their functions. */
function execute(
  adapter: Adapter,
  link: Link,
  services: GeneralServices,
  name: CommandName,
  args: unknown[],
): unknown {
  if (name in CM_COMMANDS) {
    const run = CM_COMMANDS[name as keyof typeof CM_COMMANDS] as (...all: unknown[]) => unknown;
    return run(services.open(), ...args);
  }
  if (name === 'createQp' && (args[0] as QpInit).type === 'GSI') {
    if (link.sharing) throw sharedServices();
    services.release();
  }
  // Packets that wait in the socket have no stamp yet.
  if (name === 'createCq' && (args[1] as CqContents).stamped) link.stampArrivals?.();
  if (name === 'linkStats') return link.stats();
  if (name === 'setAddress') {
    const changed = link.setAddress?.(args[0] as string, args[1] as boolean) ?? false;
    return changed ? [...link.gids] : undefined;
  }
  if (name === 'openXrcTarget') {
    const [domain, qpn] = args as [number, number | undefined];
    return qpn === undefined ? adapter.createXrcTarget(domain) : adapter.openXrcTarget(domain, qpn);
  }
  const command = name as Exclude<typeof name, `cm${string}`>;
  return (adapter[command] as (...all: unknown[]) => unknown)(...args);
}

function sharedServices(): RoceError {
  return new RoceError('ERR_ROCE_NOT_SUPPORTED', 'type: queue pair 1 belongs to all who share the address', {
    errno: 'EOPNOTSUPP',
    attribute: 'type',
    expected: 'a device that is opened without shared',
  });
}

/** 32 random bits from the operating system's generator, a block at a time. */
export function systemRandom(): () => number {
  const block = new Uint32Array(512);
  let at = block.length;
  return () => {
    if (at === block.length) {
      randomFillSync(block);
      at = 0;
    }
    return block[at++];
  };
}

/** Options of an adapter that a program may set. */
export type Tuning = Pick<AdapterOptions, 'credits' | 'limits' | 'recovery' | 'congestion' | 'experimental'>;

/** An adapter on a link, with its pump. */
export function assemble(
  link: Link,
  events: EngineEvents,
  options: Tuning & Pick<AdapterOptions, 'sharedRings'> = {},
  look = listening,
): { adapter: Adapter; pump: Pump; facts: EngineFacts; run: RunCommand } {
  const diagnostics = new Diagnostics(look, events.onDiagnostics);
  const random = systemRandom();
  let management: Management | undefined;
  const adapter = new Adapter({
    ...options,
    random,
    peers: diagnostics.peersOf(link),
    gids: link.gids,
    activeMtu: link.activeMtu,
    copy: link.copy,
    frames: link.frames?.(() => pump.wake()),
    receiveBuffer: link.receiveBuffer,
    onCompletionEvent: events.onCompletionEvent,
    onAsyncEvent: (event) => {
      // The first packet of the peer stands for its RTU.
      if (event.type === 'COMM_EST') management?.connections.heard(event.qpn);
      if (event.type === 'PATH_MIG') management?.connections.migrated(event.qpn);
      events.onAsyncEvent(event);
    },
    onStateChange: diagnostics.onStateChange,
    onRetransmit: diagnostics.onRetransmit,
    // As in Linux, a peer's request is answered, that nobody listens, also where no program listens at all.
    onGeneralServices: () => {
      try {
        services.open();
      } catch {
        // The device has no room for it: the peer hears nothing, and asks again.
      }
    },
    numbers: link.sharing?.numbers,
    clockOrigin: clockOrigin(),
    isReserved: (qpn) => management?.connections.holds(qpn, clock()) ?? false,
  });
  const pump = new Pump(adapter, link, diagnostics);
  const facts: EngineFacts = {
    gids: link.gids,
    activeMtu: link.activeMtu,
    credits: options.credits ?? false,
    limits: adapter.limits,
    experimental: options.experimental ?? [],
    link: link.kind,
    needsEventLoop: link.needsEventLoop ?? false,
    interface: link.interface,
    rawPackets: link.frames !== undefined,
    limitations: link.limitations,
    receiveBuffer: link.receiveBuffer,
    doorbells: adapter.doorbells,
    numbers: link.sharing?.numbers,
  };
  const services: GeneralServices = {
    open() {
      management ??= new Management({
        xrc: facts.experimental.includes('xrc'),
        apm: facts.experimental.includes('apm'),
        adapter,
        gids: link.gids,
        random,
        sharing: link.sharing,
        // Not from inside of a call: the program may call back.
        onEvent: (event) => queueMicrotask(() => events.onCmEvent(event)),
      });
      pump.companion = management;
      return management;
    },
    release() {
      if (!management?.release()) return;
      management = undefined;
      pump.companion = undefined;
    },
  };
  const follow = followQueuePairs(link);
  const run: RunCommand = (name, args) => {
    diagnostics.look();
    adapter.clock[0] = clock();
    try {
      const result = execute(adapter, link, services, name, args);
      follow?.(name, args, result);
      return result;
    } finally {
      diagnostics.flush();
    }
  };
  return { adapter, pump, facts, run };
}

/** Reports queue pairs to a link that takes packets for these alone. */
function followQueuePairs(
  link: Link,
): ((name: CommandName, args: unknown[], result: unknown) => void) | undefined {
  if (!link.setQueuePair) return undefined;
  /** Queue pairs by the handles of XRC targets. */
  const targets = new Map<unknown, number>();
  return (name, args, result) => {
    if (name === 'createQp' || name === 'openXrcTarget') {
      const { qpn, handle } = result as { qpn: number; handle?: number };
      if (handle !== undefined) targets.set(handle, qpn);
      link.setQueuePair!(qpn, true);
    } else if (name === 'destroyQp') {
      link.setQueuePair!(args[0] as number, false);
    } else if (name === 'closeXrcTarget') {
      const qpn = targets.get(args[0])!;
      targets.delete(args[0]);
      if (![...targets.values()].includes(qpn)) link.setQueuePair!(qpn, false);
    }
  };
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

/** Commands after which there may be something to send, or another deadline. */
const MOVING: ReadonlySet<CommandName> = new Set(['modifyQp', 'destroyQp', 'closeXrcTarget']);

/** The engine in the program's own thread. */
export class InlineEngine implements OwnEngine {
  readonly inline = true;
  readonly facts: EngineFacts;
  readonly #run: RunCommand;
  readonly #pump: Pump;
  readonly #doorbells: Ring;
  closed = false;

  constructor(link: Link, events: EngineEvents, options?: Tuning) {
    const onCompletionEvent = (cq: number): void => {
      this.#pump.woke();
      events.onCompletionEvent(cq);
    };
    const { run, pump, facts } = assemble(
      link,
      { ...events, onCompletionEvent },
      { ...options, sharedRings: false },
    );
    this.#run = run;
    this.#pump = pump;
    this.facts = facts;
    this.#doorbells = new Ring(facts.doorbells);
  }

  async call<N extends CommandName>(
    name: N,
    ...args: Parameters<Commands[N]>
  ): Promise<ReturnType<Commands[N]>> {
    return this.execute(name, args);
  }

  execute<N extends CommandName>(name: N, args: Parameters<Commands[N]>): ReturnType<Commands[N]> {
    if (this.closed) throw closedError();
    const result = this.#run(name, args) as ReturnType<Commands[N]>;
    if (MOVING.has(name) || name.startsWith('cm')) this.#pump.settle();
    return result;
  }

  ring(qpn: number, recv: boolean): void {
    if (ringDoorbell(this.#doorbells, qpn, recv)) this.#pump.wake();
  }

  progress(): Promise<void> {
    return this.#pump.progress();
  }

  attach(source: WorkSource): Attached {
    return this.#pump.attach(source);
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
