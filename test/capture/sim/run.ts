/** One seeded run of several reliable connections, to be captured: the network and everything else follow from the seed. */
import {
  ARENA_BYTES,
  CONNECTION_DEFAULTS,
  ConnectionsWorkload,
  createRandom,
  type EndpointKind,
  EngineDevice,
  ModelDevice,
  Network,
  NotificationPoint,
  type Random,
  type SimDevice,
  type SimHost,
  type WireOptions,
} from '@node-roce/sim';
import type { KeepEarly } from '@node-roce/transport';
import { gidFromText } from '@node-roce/wire';
import { type NetworkKind, wireOf } from '../../sim/run.ts';

export interface CaptureRun {
  seed: number;
  network: NetworkKind;
  /** 0 … 1; what the kind of network makes of it. */
  loss: number;
  /** The kind of the first host, and of the others. */
  ends: readonly [EndpointKind, EndpointKind];
  hosts: number;
  connections: number;
  /** Requests of each direction. */
  count: number;
  /** Whether engines send tail loss probes (the default). Without them it is the ACK timer that runs out. */
  probes?: boolean;
  /** Whether the responders of engines keep packets that come early: off by default. */
  keepEarly?: KeepEarly;
  /** First PSN of every queue pair; drawn by default. */
  psn?: number;
}

/** A finished run, ready to be tapped. */
export interface Captured {
  options: CaptureRun;
  network: Network;
  hosts: readonly SimHost[];
  devices: readonly SimDevice[];
  workload: ConnectionsWorkload;
  /** Of each connection, the numbers of its hosts. */
  pairs: readonly (readonly [number, number])[];
  /** IPv4 with an Identification of its own for each packet, IPv4 with 0 for all, or IPv6. */
  addressing: Addressing;
  pathMtu: number;
  /** The drawn values, for the analysis of a failure. */
  settings: Record<string, unknown>;
}

type Addressing = 'ipv4' | 'ipv4-no-id' | 'ipv6';

/** Virtual time after which a run ends in any case, µs. */
const UNTIL = 600e6;
const ECT0 = 2;

/** @throws Error when something happened that must not */
export function runConnections(options: CaptureRun): Captured {
  const random = createRandom(options.seed);
  const network = new Network(options.seed);
  const addressing = random.pick(['ipv4', 'ipv4', 'ipv4', 'ipv4-no-id', 'ipv6'] as const);
  network.countsIpIds = addressing === 'ipv4';
  const arenaBytes = ARENA_BYTES * options.connections;
  const devices = Array.from({ length: options.hosts }, (_, i) =>
    makeDevice(options, i, addressing, arenaBytes, random),
  );
  const peers = new Map<string, number>();
  const hosts = devices.map((device, i) => new NotificationPoint(device, (qpn) => peers.get(`${i} ${qpn}`)));
  for (const host of hosts) network.add(host);
  const delay = random.pick([1, 5, 10, 50]);
  for (const from of hosts) {
    for (const to of hosts) if (from !== to) network.link(from, to, ...segments(options, delay, addressing));
  }
  const pairs = Array.from({ length: options.connections }, () => drawPair(options.hosts, random));
  const maxRdAtomic = random.pick([1, 2, 4, 16]);
  const connection = {
    ...CONNECTION_DEFAULTS,
    timeout: random.pick([8, 8, 10, 14]),
    minRnrTimer: random.pick([1, 5, 10]),
    pathMtu: random.pick([256, 1024, 4096]),
    credits: random.chance(0.3),
    trafficClass: random.chance(0.7) ? ECT0 : 0,
    maxRdAtomic,
    maxDestRdAtomic: maxRdAtomic,
  };
  const receiveEvery = random.pick([0, 10, 100]);
  const workload = new ConnectionsWorkload({
    network,
    devices,
    pairs,
    connection,
    count: options.count,
    oneWay: 0.4,
    receiveEvery,
    ...(options.psn === undefined ? {} : { psn: options.psn }),
    random,
  });
  workload.connections.forEach(({ a, b }, c) => {
    const [i, j] = pairs[c];
    peers.set(`${i} ${a.info.qpn}`, b.info.qpn);
    peers.set(`${j} ${b.info.qpn}`, a.info.qpn);
  });
  if (!network.run(() => workload.step(), UNTIL)) throw new Error(`stalled at ${network.now} µs`);
  // Packets that are still under way arrive.
  network.pass(1000);
  const { pathMtu } = connection;
  const settings = { ...connection, delay, addressing, receiveEvery };
  return { options, network, hosts, devices, workload, pairs, addressing, pathMtu, settings };
}

function makeDevice(
  { ends, probes = true, keepEarly = 'off' }: CaptureRun,
  host: number,
  addressing: Addressing,
  arenaBytes: number,
  random: Random,
): SimDevice {
  const gid = gidFromText(addressing === 'ipv6' ? `fd77::${host + 1}` : `10.0.0.${host + 1}`);
  const seed = random.next();
  // Real adapters count queue pairs up from the same number.
  if (ends[Math.min(host, 1)] === 'model') return new ModelDevice({ gid, qpn: 0x11, arenaBytes });
  const recovery = { probes, keepEarly };
  return new EngineDevice({ gid, arenaBytes, seed, credits: random.chance(0.3), recovery });
}

function drawPair(hosts: number, random: Random): [number, number] {
  const a = random.between(0, hosts - 1);
  const b = random.between(0, hosts - 2);
  return [a, b < a ? b : b + 1];
}

/** The way's faults, half of them before the middle. */
function segments({ network, loss }: CaptureRun, delay: number, addressing: Addressing): WireOptions[] {
  const half = wireOf(network, loss / 2, delay / 2);
  // Without Identifications a copy that the network made looks like one that the sender made.
  if (addressing !== 'ipv4') delete half.duplicate;
  if (network === 'narrow') return [half, { delay: delay / 2 }];
  return [half, half];
}
