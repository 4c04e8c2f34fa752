/** One seeded run of the mixed workload: its network follows from the seed, and a failure leaves a capture. */
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  ARENA_BYTES,
  captureOf,
  createRandom,
  decodePacket,
  type EndpointFactory,
  type EndpointKind,
  EngineDevice,
  EngineEndpoint,
  MixedWorkload,
  type Network,
  Pair,
  type WireOptions,
} from '@node-roce/sim';
import type { Adapter, Congestion, Recovery } from '@node-roce/transport';
import { AethKind, aethKind, type OpcodeInfo, OperationBits, opcodeInfo, psnDiff } from '@node-roce/wire';
import { drawCongestion, withMarks } from './draw-congestion.ts';
import { drawRecovery } from './draw-recovery.ts';

export const NETWORKS = [
  'clean',
  'lossy',
  'bursty',
  'reordering',
  'duplicating',
  'corrupting',
  'narrow',
  'all',
] as const;
export type NetworkKind = (typeof NETWORKS)[number];

type AdapterCounters = ReturnType<Adapter['counters']>;

export interface RunOptions {
  seed: number;
  a: EndpointKind;
  b: EndpointKind;
  network: NetworkKind;
  /** 0 … 1; what the kind of network makes of it. */
  loss: number;
  /** Requests of each side. */
  count: number;
}

/**
 * The effect of a kind of network on one direction. A fifth of the packets is lost one way only: lost both ways, one
 * round trip in three fails, and seven retries in a row are exhausted within some thousand messages, by
 * the rule and without a fault.
 */
export function wireOf(network: NetworkKind, loss: number, delay: number): WireOptions {
  switch (network) {
    case 'clean':
      return { delay };
    case 'lossy':
      return { delay, loss };
    case 'bursty':
      return { delay, burst: { begin: loss / 4, end: 0.6 } };
    case 'reordering':
      return { delay, reorder: loss, loss: loss / 10 };
    case 'duplicating':
      return { delay, duplicate: loss, loss: loss / 10 };
    case 'corrupting':
      return { delay, corrupt: loss };
    case 'narrow':
      return { delay, rate: 1e9, queue: 24_000, markAt: 8_000 };
    case 'all':
      return { delay, loss, reorder: loss / 2, duplicate: loss / 2, corrupt: loss / 10 };
  }
}

/** The retry count that the runs connect with. */
const RETRY_CNT = 7;

export interface Outcome {
  /** Errors; nothing, if all of it was as it has to be. */
  fault?: string;
  /** The connection was given up after as many repetitions as the rule asks for. */
  gaveUp: boolean;
  network: Network;
  /** CNPs that engines obeyed. */
  cnpHandled: number;
  /** The options in the form that `ROCE_SIM` takes. */
  replay: string;
}

/** An outcome, with the engines that took part and how each recovers. */
export interface MixedOutcome extends Outcome {
  engines: readonly { recovery: Recovery; counters: AdapterCounters }[];
}

/** Runs it. The connection's other attributes are drawn from the seed. */
export function runMixed(options: RunOptions): MixedOutcome {
  const random = createRandom(options.seed);
  const delay = random.pick([1, 5, 10, 50]);
  const [there, back] = [options.loss, options.loss > 0.1 ? 0 : options.loss];
  const congestion = drawCongestion(options.seed, [options.a, options.b]);
  const wires = [there, back].map((share) => withMarks(wireOf(options.network, share, delay), congestion));
  if (random.chance(0.5)) wires.reverse();
  const maxRdAtomic = random.pick([1, 2, 4, 16]);
  const pathMtu = random.pick([256, 1024, 4096]);
  const pair = new Pair({
    a: endpointOf(options, 1, congestion[0]),
    b: endpointOf(options, 2, congestion[1]),
    seed: options.seed,
    arenaBytes: ARENA_BYTES,
    aToB: wires[0],
    bToA: wires[1],
    timeout: 8,
    retryCnt: RETRY_CNT,
    pathMtu,
    credits: random.chance(0.3),
    maxRdAtomic,
    maxDestRdAtomic: maxRdAtomic,
  });
  const { seed, a, b, network, loss, count } = options;
  if (options.a === 'engine' && options.b === 'engine') {
    for (const side of [pair.a, pair.b]) {
      (side as EngineEndpoint).adapter.acknowledgeAhead(side.info.qpn);
    }
  }
  const outcome: MixedOutcome = {
    gaveUp: false,
    network: pair.network,
    cnpHandled: 0,
    replay: [seed, a, b, network, loss, count].join(','),
    engines: [],
  };
  try {
    const workload = new MixedWorkload(pair.a, pair.b, count, random);
    const finished = pair.run(() => workload.step(), 600e6);
    if (!finished) outcome.fault = `stalled at ${pair.network.now} µs`;
    else if (workload.failure === 'RETRY_EXC_ERR' && triedInVain(pair.network, pathMtu))
      outcome.gaveUp = true;
    else if (workload.failure !== undefined) outcome.fault = `the connection failed: ${workload.failure}`;
  } catch (error) {
    outcome.fault = (error as Error).message;
  }
  outcome.cnpHandled = cnpHandledBy(pair.a, pair.b);
  const sides = [pair.a, pair.b] as const;
  outcome.engines = sides.flatMap((side, i) => {
    if (!(side instanceof EngineEndpoint)) return [];
    return [{ recovery: drawRecovery(seed, i + 1, [a, b]), counters: side.adapter.counters() }];
  });
  return outcome;
}

/** The model; or an engine that recovers from losses in a way drawn from the seed. */
function endpointOf(
  { a, b, seed }: RunOptions,
  number: 1 | 2,
  congestion: Partial<Congestion>,
): EndpointKind | EndpointFactory {
  const kind = number === 1 ? a : b;
  if (kind === 'model') return kind;
  const recovery = drawRecovery(seed, number, [a, b]);
  return (made) => new EngineEndpoint({ ...made, recovery, congestion });
}

/** The CNPs that the engines among some devices obeyed. */
export function cnpHandledBy(...devices: readonly object[]): number {
  const engines = devices.filter((device) => device instanceof EngineDevice);
  return engines.reduce((sum, { adapter }) => sum + adapter.counters().cnpHandled, 0);
}

/**
 * Whether the side that gave up had the right to: what it asked for last was asked for at least
 * `RETRY_CNT` + 1 times, and since the first of the repetitions nothing intact arrived that answers it. (The answer
 * to the first try may have come before its turn, ahead of an answer that was late: it does not count.)
 */
function triedInVain({ trace }: Network, pathMtu: number): boolean {
  const packets = trace.flatMap(({ event, bytes, source, corrupt }) => {
    const decoded = decodePacket(bytes);
    if (corrupt && event === 'arrived') return [];
    if (!decoded.ok) return [];
    const { psn, opcode, aeth, reth } = decoded.packet;
    const info = opcodeInfo(opcode)!;
    // A READ request asks for as many PSNs as it has responses.
    const psns = info.isReadRequest ? Math.max(1, Math.ceil(reth!.length / pathMtu)) : 1;
    return [{ event, psn, psns, side: source[15], info, aeth }];
  });
  return [1, 2].some((side) => {
    const sent = packets.filter((p) => p.event === 'sent' && p.side === side && p.info.isRequest);
    // Where the last round of repetitions began: the last packet that is behind the one before it.
    const begin = sent.findLastIndex(({ psn }, i) => i > 0 && psnDiff(psn, sent[i - 1].psn) <= 0);
    if (begin < 0) return false;
    const { psn, info } = sent[begin];
    // An ACK behind a READ or atomic shows only that its answer was lost.
    const ownAnswer = info.isReadRequest || info.isAtomic;
    const tries = packets.flatMap((p, i) =>
      p.event === 'sent' && p.side === side && p.info.isRequest && covers(p, psn) ? [i] : [],
    );
    const answered = packets
      .slice(tries.at(-RETRY_CNT))
      .filter((p) => p.event === 'arrived' && p.side !== side && !p.info.isRequest)
      .some((p) => (ownAnswer ? p.psn === psn && !isAcknowledge(p.info) : acknowledges(p, psn)));
    return tries.length > RETRY_CNT && !answered;
  });
}

const isAcknowledge = (info: OpcodeInfo) => info.operation === OperationBits.ACKNOWLEDGE;

const covers = (request: { psn: number; psns: number }, psn: number) => {
  const ahead = psnDiff(psn, request.psn);
  return ahead >= 0 && ahead < request.psns;
};

/** Whether a response with this PSN and AETH acknowledges the request packet at `psn`. */
function acknowledges(response: { psn: number; aeth?: { syndrome: number } }, psn: number): boolean {
  const ahead = psnDiff(response.psn, psn);
  const isNak = response.aeth !== undefined && aethKind(response.aeth.syndrome) !== AethKind.ACK;
  return isNak ? ahead > 0 : ahead >= 0;
}

export function parseReplay(text: string): RunOptions {
  const [seed, a, b, network, loss, count] = text.split(',');
  return {
    seed: Number(seed),
    a: a as EndpointKind,
    b: b as EndpointKind,
    network: network as NetworkKind,
    loss: Number(loss),
    count: Number(count),
  };
}

/** Writes the packets as pcapng files: one of the sent ones, one of those that arrived. Returns the path of the former. */
export function writeCapture(outcome: Pick<Outcome, 'network' | 'replay'>): string {
  const path = join(tmpdir(), `node-roce-sim-${outcome.replay.replaceAll(',', '-')}.pcapng`);
  const { trace } = outcome.network;
  const comment = `ROCE_SIM=${outcome.replay}`;
  writeFileSync(path, captureOf(trace, comment));
  writeFileSync(
    path.replace(/pcapng$/, 'arrived.pcapng'),
    captureOf(trace, comment, { events: ['arrived'] }),
  );
  return path;
}
