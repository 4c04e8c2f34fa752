/**
 * The one list of control calls: a row for each. The engine in this thread, the one in a worker, the contexts and the link
 * follow the rows; the type of a call is that of its function.
 */
import type { Connections } from '@node-roce/cm';
import type { Link } from '@node-roce/link';
import {
  type Adapter,
  type GidEntry,
  type QpInit,
  type RingFactory,
  RoceError,
  type SrqInit,
  type XrcTargetOpened,
} from '@node-roce/transport';
import { clock } from './clock.ts';
import type { Management } from './management.ts';

/** Queue pair 1, which either the connection manager has or the program. */
export interface GeneralServices {
  /** Opens it for the connection manager; EBUSY where the program has it. */
  open(): Management;
  /** Takes it from a connection manager that has nothing to do. */
  release(): void;
}

/** The parts of an engine that commands are carried out on. */
export interface Ground {
  readonly adapter: Adapter;
  readonly link: Link;
  readonly services: GeneralServices;
}

/** Kinds of objects that a program owns in an engine, in the order in which they can be destroyed. */
export const KINDS = [
  'listener',
  'connection',
  'membership',
  'queuePair',
  'xrcTarget',
  'window',
  'region',
  'sharedReceiveQueue',
  'xrcDomain',
  'addressHandle',
  'completionQueue',
  'protectionDomain',
] as const;
export type Kind = (typeof KINDS)[number];

/** Consequences of a command that was carried out. */
interface Effects<A extends unknown[]> {
  /** The kind of the object that its result names; a membership is named by the arguments. */
  readonly creates?: Kind;
  /** The kind of the object that its arguments name. */
  readonly destroys?: Kind;
  /** There may be something to send now, or another deadline. */
  readonly moves?: boolean;
  /** The arguments with which the rings of a new object are made where the context wants them. */
  withRings?(args: A, rings: RingFactory): A;
}

interface Row<A extends unknown[], R> extends Effects<A> {
  /** Throws as the adapter does. */
  run(ground: Ground, ...args: A): R;
}

/** The adapter's methods, which are commands as they are. */
type Method = {
  [N in keyof Adapter]: Adapter[N] extends (...args: never[]) => unknown ? N : never;
}[keyof Adapter];

function own<A extends unknown[], R>(
  run: (ground: Ground, ...args: A) => R,
  effects: Effects<A> = {},
): Row<A, R> {
  return { run, ...effects };
}

function adapter<N extends Method>(
  name: N,
  effects: Effects<Parameters<Adapter[N]>> = {},
): Row<Parameters<Adapter[N]>, ReturnType<Adapter[N]>> {
  const run = (ground: Ground, ...args: Parameters<Adapter[N]>) =>
    (ground.adapter[name] as (...all: unknown[]) => ReturnType<Adapter[N]>)(...args);
  return { run, ...effects };
}

/** A command of the connection manager, which it opens; `now` is the time. */
function manager<A extends unknown[], R>(
  run: (management: Management, now: number, ...args: A) => R,
  effects: Effects<A> = {},
): Row<A, R> {
  return { run: ({ services }, ...args) => run(services.open(), clock(), ...args), moves: true, ...effects };
}

/** The parameters of a method of the connection manager. */
type Of<N extends keyof Connections> = Connections[N] extends (...args: infer A) => unknown ? A : never;

function createQp({ adapter, link, services }: Ground, init: QpInit): ReturnType<Adapter['createQp']> {
  if (init.type === 'GSI') {
    if (link.sharing) throw sharedServices();
    services.release();
  }
  return adapter.createQp(init);
}

type CqArgs = Parameters<Adapter['createCq']>;

function createCq({ adapter, link }: Ground, ...args: CqArgs): ReturnType<Adapter['createCq']> {
  // Packets that wait in the socket have no stamp yet.
  if (args[1]?.stamped) link.stampArrivals?.();
  return adapter.createCq(...args);
}

/** The interface got an address or lost it: the new GID table, undefined where that is the old one. */
function setAddress({ link }: Ground, address: string, present: boolean): GidEntry[] | undefined {
  const changed = link.setAddress?.(address, present) ?? false;
  return changed ? [...link.gids] : undefined;
}

/** An opening of a target queue pair; without a number, of a new one. */
function openXrcTarget({ adapter }: Ground, domain: number, qpn: number | undefined): XrcTargetOpened {
  return qpn === undefined ? adapter.createXrcTarget(domain) : adapter.openXrcTarget(domain, qpn);
}

function sharedServices(): RoceError {
  return new RoceError(
    'ERR_ROCE_NOT_SUPPORTED',
    'type: all devices at a shared address use queue pair 1 together',
    {
      errno: 'EOPNOTSUPP',
      attribute: 'type',
      expected: 'a device that is opened without shared',
    },
  );
}

/** Queues of requests in the rings of a context. */
const inRings = <I extends QpInit | SrqInit>([init]: [I], rings: RingFactory): [I] => [
  { ...init, newRing: rings.work },
];

/** The rows: what runs, what it creates or destroys, and whether there may be something to send then. */
const COMMANDS = {
  allocPd: adapter('allocPd', { creates: 'protectionDomain' }),
  deallocPd: adapter('deallocPd', { destroys: 'protectionDomain' }),
  registerMr: adapter('registerMr', { creates: 'region' }),
  // `deregisterMr` takes it back.
  allocNullMr: adapter('allocNullMr', { creates: 'region' }),
  deregisterMr: adapter('deregisterMr', { destroys: 'region' }),
  reregisterMr: adapter('reregisterMr'),
  allocMw: adapter('allocMw', { creates: 'window' }),
  deallocMw: adapter('deallocMw', { destroys: 'window' }),
  createCq: own(createCq, {
    creates: 'completionQueue',
    withRings: ([cqe, contents], { completions }): CqArgs => [cqe, contents, completions],
  }),
  resizeCq: adapter('resizeCq'),
  destroyCq: adapter('destroyCq', { destroys: 'completionQueue' }),
  createSrq: adapter('createSrq', { creates: 'sharedReceiveQueue', withRings: inRings }),
  modifySrq: adapter('modifySrq'),
  querySrq: adapter('querySrq'),
  postSrqOp: adapter('postSrqOp'),
  destroySrq: adapter('destroySrq', { destroys: 'sharedReceiveQueue' }),
  openXrcd: adapter('openXrcd', { creates: 'xrcDomain' }),
  closeXrcd: adapter('closeXrcd', { destroys: 'xrcDomain' }),
  openXrcTarget: own(openXrcTarget, { creates: 'xrcTarget' }),
  closeXrcTarget: adapter('closeXrcTarget', { destroys: 'xrcTarget', moves: true }),
  createAh: adapter('createAh', { creates: 'addressHandle' }),
  destroyAh: adapter('destroyAh', { destroys: 'addressHandle' }),
  createQp: own(createQp, { creates: 'queuePair', withRings: inRings }),
  modifyQp: adapter('modifyQp', { moves: true }),
  acknowledgeAhead: adapter('acknowledgeAhead'),
  queryQp: adapter('queryQp'),
  destroyQp: adapter('destroyQp', { destroys: 'queuePair', moves: true }),
  setFrameFilter: adapter('setFrameFilter'),
  frameCounts: adapter('frameCounts'),
  attachMcast: adapter('attachMcast', { creates: 'membership' }),
  detachMcast: adapter('detachMcast', { destroys: 'membership' }),
  counters: adapter('counters'),
  qpCounters: adapter('qpCounters'),
  linkStats: own(({ link }) => link.stats()),
  setAddress: own(setAddress),
  // The connection manager's, with its own parameters but for the time.
  cmListen: manager(({ connections }, _, ...args: Of<'listen'>) => connections.listen(...args), {
    creates: 'listener',
  }),
  cmUnlisten: manager(({ connections }, now, listener: number) => connections.unlisten(listener, now), {
    destroys: 'listener',
  }),
  cmConnect: manager(({ connections }, now, init: Of<'connect'>[0]) => connections.connect(init, now), {
    creates: 'connection',
  }),
  cmAccept: manager(({ connections }, now, id: number, init: Of<'accept'>[1]) =>
    connections.accept(id, init, now),
  ),
  cmReady: manager(({ connections }, _, ...args: Of<'ready'>) => connections.ready(...args)),
  cmReject: manager(({ connections }, now, id: number, init: Of<'reject'>[1]) =>
    connections.reject(id, init, now),
  ),
  cmDisconnect: manager(({ connections }, now, id: number, privateData?: Uint8Array) =>
    connections.disconnect(id, now, privateData),
  ),
  cmDestroy: manager(({ connections }, now, id: number) => connections.destroy(id, now), {
    destroys: 'connection',
  }),
  cmLoadPath: manager(({ connections }, now, id: number, path: Of<'loadPath'>[1]) =>
    connections.loadPath(id, path, now),
  ),
  cmAnswerPath: manager(({ connections }, _, ...args: Of<'answerPath'>) => connections.answerPath(...args)),
  cmRequestOf: manager(({ connections }, _, id: number) => connections.requestOf(id)),
  cmResolve: manager(({ connections }, now, init: Of<'resolve'>[0]) => connections.resolve(init, now), {
    creates: 'connection',
  }),
  cmAnswer: manager(({ connections }, _, ...args: Of<'answer'>) => connections.answer(...args)),
  /** Whether the ACKs of a queue pair carry credits: both sides of its connection asked for that. */
  cmSetCredits: manager((management, _, qpn: number, credits: boolean) =>
    management.setCredits(qpn, credits),
  ),
  cmCounters: manager((management) => management.report()),
} as const;

export type CommandName = keyof typeof COMMANDS;

/** Control calls as their callers see them. */
export type Commands = {
  [N in CommandName]: (typeof COMMANDS)[N] extends Row<infer A, infer R> ? (...args: A) => R : never;
};

/** The row of a command, whatever its types are. */
export const rowOf = (name: CommandName): Row<unknown[], unknown> =>
  COMMANDS[name] as unknown as Row<unknown[], unknown>;

/** The commands that destroy objects, by their kinds. */
export const DESTROYERS = Object.fromEntries(
  Object.entries(COMMANDS).flatMap(([name, row]) => {
    const { destroys } = row as Effects<never>;
    return destroys === undefined ? [] : [[destroys, name]];
  }),
) as Record<Kind, CommandName>;
