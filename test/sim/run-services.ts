/** One seeded run of all services at once: its network and attributes follow from the seed. */
import {
  CONNECTION_DEFAULTS,
  createRandom,
  type EndpointKind,
  EngineDevice,
  ModelDevice,
  Network,
  type Random,
  SERVICES_ARENA_BYTES,
  ServicesWorkload,
  type SimDevice,
} from '@node-roce/sim';
import type { Congestion, Recovery } from '@node-roce/transport';
import { gidFromText } from '@node-roce/wire';
import { drawCongestion, withMarks } from './draw-congestion.ts';
import { drawRecovery } from './draw-recovery.ts';
import { cnpHandledBy, type NetworkKind, type Outcome, wireOf } from './run.ts';

export interface ServicesRun {
  seed: number;
  a: EndpointKind;
  b: EndpointKind;
  network: NetworkKind;
  /** Overrides the drawn options of the engines. */
  recovery?: Partial<Recovery>;
  /** Called with both devices before anything happens: to stand between them and the network. */
  prepare?: (devices: readonly [SimDevice, SimDevice], network: Network) => void;
}

/** Bytes around each engine's arena that nobody may touch. */
export const GUARD_BYTES = 4096;

export interface ServicesOutcome extends Pick<Outcome, 'fault' | 'network' | 'cnpHandled' | 'replay'> {
  delivered: ServicesWorkload['delivered'];
  placements: ServicesWorkload['placements'];
  limitsReached: number;
}

/** Requests of each direction of each lane. */
const COUNT = 40;

/** With nothing under way for so many turns, a workload stands still. */
const IDLE_TURNS = 50;

/** Networks on which nothing comes late or twice. */
const IN_ORDER: readonly NetworkKind[] = ['clean', 'lossy', 'bursty', 'corrupting', 'narrow'];

export function runServices(run: ServicesRun): ServicesOutcome {
  const { seed, a, b, network: kind, prepare } = run;
  const random = createRandom(seed);
  const network = new Network(seed);
  const kinds = [a, b];
  const congestion = drawCongestion(seed, kinds);
  const [left, right] = kinds.map((kind, i) => {
    const recovery = { ...drawRecovery(seed, i + 1, kinds), ...run.recovery };
    return makeDevice(kind, i + 1, { recovery, congestion: congestion[i] }, random);
  });
  // Low enough that no connection runs out of retries.
  const loss = random.pick([0.01, 0.03, 0.05]);
  const delay = random.pick([1, 5, 10, 50]);
  prepare?.([left, right], network);
  for (const host of [left, right]) network.add(host);
  const way = withMarks(wireOf(kind, loss, delay), congestion);
  network.link(left, right, way);
  network.link(right, left, way);
  const maxRdAtomic = random.pick([1, 2, 4, 16]);
  const connection = {
    ...CONNECTION_DEFAULTS,
    timeout: 10,
    pathMtu: random.pick([256, 1024, 4096]),
    maxRdAtomic,
    maxDestRdAtomic: maxRdAtomic,
  };
  const outcome = { network, replay: [seed, a, b, kind].join(',') };
  let workload: ServicesWorkload | undefined;
  const result = (fault?: string): ServicesOutcome => ({
    ...outcome,
    fault,
    delivered: workload?.delivered ?? { RC: 0, UC: 0, UD: 0 },
    placements: workload?.placements ?? { flushes: 0, atomicWrites: 0 },
    limitsReached: workload?.limitsReached ?? 0,
    cnpHandled: cnpHandledBy(left, right),
  });
  try {
    const inOrder = IN_ORDER.includes(kind);
    const services = { network, a: left, b: right, connection, count: COUNT, random, inOrder };
    workload = new ServicesWorkload(services);
    const run = () => network.run(() => workload!.step(), 600e6);
    // Binding a window, or sending what the wire then loses, moves the workload and brings nothing to wait for.
    if (!Array.from({ length: IDLE_TURNS }).some(run)) return result(`stalled at ${network.now} µs`);
    // Packets that are still under way arrive.
    network.run(() => {
      workload!.step();
      return false;
    }, network.now + 1e6);
    workload.finish();
    return result();
  } catch (error) {
    return result((error as Error).message);
  }
}

function makeDevice(
  kind: EndpointKind,
  number: number,
  drawn: { recovery: Recovery; congestion: Partial<Congestion> },
  random: Random,
): SimDevice {
  const gid = gidFromText(`10.0.0.${number}`);
  const common = { gid, arenaBytes: SERVICES_ARENA_BYTES };
  const seed = random.next();
  if (kind === 'model') return new ModelDevice({ ...common, qpn: 0x10 * number, notifies: true });
  return new EngineDevice({ ...common, seed, guardBytes: GUARD_BYTES, ...drawn });
}
