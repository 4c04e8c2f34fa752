/** One seeded run of XRC between two devices: its network and attributes follow from the seed. */
import {
  CONNECTION_DEFAULTS,
  createRandom,
  type EndpointKind,
  EngineDevice,
  ModelDevice,
  Network,
  type SimDevice,
  XRC_ARENA_BYTES,
  XrcWorkload,
} from '@node-roce/sim';
import { gidFromText } from '@node-roce/wire';
import { drawRecovery } from './draw-recovery.ts';
import { type NetworkKind, wireOf } from './run.ts';

export interface XrcRun {
  seed: number;
  a: EndpointKind;
  b: EndpointKind;
  network: NetworkKind;
}

export interface XrcOutcome {
  /** The event that must not happen, if it did. */
  fault: string | undefined;
  /** Messages that took a receive. */
  delivered: number;
  placements: XrcWorkload['placements'];
  network: Network;
  replay: string;
}

/** Requests of each initiator to each SRQ. */
const COUNT = 30;

export function runXrc({ seed, a, b, network: kind }: XrcRun): XrcOutcome {
  const random = createRandom(seed);
  const network = new Network(seed);
  const kinds = [a, b];
  const [left, right] = kinds.map((kind, i): SimDevice => {
    const common = { gid: gidFromText(`10.0.0.${i + 1}`), arenaBytes: XRC_ARENA_BYTES };
    if (kind === 'model') return new ModelDevice({ ...common, qpn: 0x10 * (i + 1) });
    return new EngineDevice({ ...common, seed: random.next(), recovery: drawRecovery(seed, i + 1, kinds) });
  });
  const way = wireOf(kind, random.pick([0.01, 0.03, 0.05]), random.pick([1, 5, 10, 50]));
  for (const host of [left, right]) network.add(host);
  network.link(left, right, way);
  network.link(right, left, way);
  const maxRdAtomic = random.pick([1, 2, 4, 16]);
  const connection = {
    ...CONNECTION_DEFAULTS,
    pathMtu: random.pick([256, 1024, 4096]),
    maxRdAtomic,
    maxDestRdAtomic: maxRdAtomic,
  };
  let workload: XrcWorkload | undefined;
  const outcome = (fault?: string): XrcOutcome => ({
    fault,
    delivered: workload?.delivered ?? 0,
    placements: workload?.placements ?? { flushes: 0, atomicWrites: 0 },
    network,
    replay: [seed, a, b, kind].join(','),
  });
  try {
    workload = new XrcWorkload({ a: left, b: right, connection, count: COUNT, random });
    const step = () => workload!.step();
    if (!network.run(step, 600e6)) return outcome(`stalled at ${network.now} µs`);
    // Packets that are still under way arrive.
    network.run(() => {
      step();
      return false;
    }, network.now + 1e6);
    workload.finish();
    return outcome();
  } catch (error) {
    return outcome((error as Error).message);
  }
}
