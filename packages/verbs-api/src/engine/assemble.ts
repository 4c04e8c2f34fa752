/** An adapter on a link, with its pump, its connection manager and its commands: what an engine is made of, in either thread. */
import type { Link } from '@node-roce/link';
import { Adapter, type AdapterOptions } from '@node-roce/transport';
import { Diagnostics, listening } from '../diagnostics.ts';
import { clock, clockOrigin } from './clock.ts';
import { type CommandName, type GeneralServices, rowOf } from './commands.ts';
import type { EngineEvents, EngineFacts } from './engine.ts';
import { Management } from './management.ts';
import { Owned } from './owned.ts';
import { Pump } from './pump.ts';
import { systemRandom } from './system-random.ts';

/** Runs a command by its name; throws as the adapter does. */
export type RunCommand = (name: CommandName, args: unknown[]) => unknown;
type Follow = (name: CommandName, args: readonly unknown[], result: unknown) => void;

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
    port: link.port,
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
  const ground = { adapter, link, services };
  const follow = followQueuePairs(link);
  const run: RunCommand = (name, args) => {
    diagnostics.look();
    adapter.clock[0] = clock();
    try {
      const result = rowOf(name).run(ground, ...args);
      follow?.(name, args, result);
      return result;
    } finally {
      diagnostics.flush();
    }
  };
  return { adapter, pump, facts, run };
}

/** Reports queue pairs to a link that takes packets for these alone. */
function followQueuePairs(link: Link): Follow | undefined {
  if (!link.setQueuePair) return undefined;
  const open = new Owned();
  return (name, args, result) => {
    const created = open.created(name, args, result);
    if (created?.qpn !== undefined) link.setQueuePair!(created.qpn, true);
    const gone = open.destroyed(name, args);
    // Another opening of the same queue pair may go on.
    if (gone?.qpn !== undefined && !open.hasQueuePair(gone.qpn)) link.setQueuePair!(gone.qpn, false);
  };
}
