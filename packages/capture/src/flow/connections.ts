/** Connections as plain values, at the end of a capture; and the messages that are kept with them. */
import { PSN_MASK } from '@node-roce/wire';
import type { Addresses } from '../read/packet.ts';
import type { Connection, DirectionPath, Endpoint, LadderPacket, Message, Verdict } from './analysis.ts';
import { DistributionBuilder } from './record/distribution.ts';
import { reasonOf } from './record/recoveries.ts';
import { commonSums } from './record/series.ts';
import type { ConnectionState, Direction } from './track/direction.ts';
import { NO_COUNTS } from './track/direction.ts';
import { newMessageCounts } from './track/messages.ts';

/** Messages kept of a connection: its first, and others that did not go smoothly. */
const FIRST_MESSAGES = 200;
const TROUBLED_MESSAGES = 200;
/** Of all connections. */
const MAX_MESSAGES = 50_000;

interface Kept {
  first: Message[];
  troubled: Message[];
}

/** Builds the connections of an analysis, and chooses the messages that stay in their lists. */
export class ConnectionBuilder {
  readonly #kept = new Map<number, Kept>();
  #left = MAX_MESSAGES;

  /** Decides whether a message stays in the list of its connection. */
  keep(message: Message): void {
    if (this.#left === 0) return;
    let kept = this.#kept.get(message.connection);
    if (kept === undefined) {
      kept = { first: [], troubled: [] };
      this.#kept.set(message.connection, kept);
    }
    const troubled = message.outcome === 'failed' || message.retransmitted > 0;
    const [list, most] =
      kept.first.length < FIRST_MESSAGES ? [kept.first, FIRST_MESSAGES] : [kept.troubled, TROUBLED_MESSAGES];
    if (list.length >= most || (list === kept.troubled && !troubled)) return;
    list.push(message);
    this.#left--;
  }

  build(state: ConnectionState, addresses: Addresses): Connection {
    const { first, second } = state;
    const [ab, ba] = first.from === 'a' ? [first, second] : [second, first];
    const both = [ab, ba].filter((direction) => direction !== undefined);
    const kept = this.#kept.get(state.id) ?? { first: [], troubled: [] };
    const messages = [...kept.first, ...kept.troubled];
    return {
      id: state.id,
      transport: first.transport ?? second?.transport ?? 'CNP',
      a: endpoint(ab, ba, addresses),
      b: endpoint(ba, ab, addresses),
      pairing: state.pairing,
      pairingReason: state.pairingReason,
      pathMtu: both.map((direction) => direction.requester?.pathMtu ?? 0).find((mtu) => mtu > 0),
      start: Math.min(...both.map((direction) => direction.span.start)),
      end: Math.max(...both.map((direction) => direction.span.end)),
      firstFrame: Math.min(...both.map((direction) => direction.span.firstFrame)),
      lastFrame: Math.max(...both.map((direction) => direction.span.lastFrame)),
      aToB: ab?.counts ?? NO_COUNTS,
      bToA: ba?.counts ?? NO_COUNTS,
      paths: { aToB: pathOf(ab), bToA: pathOf(ba) },
      messagesFromA: ab?.messageCounts ?? newMessageCounts(),
      messagesFromB: ba?.messageCounts ?? newMessageCounts(),
      completion: merged(both.map((direction) => direction.record.latencies.completion)),
      latencyClasses: both.flatMap(({ record, from }) => record.latencies.classes.results(from)),
      ackRoundTrip: merged(both.map((direction) => direction.requester?.ackRoundTrip)),
      readRoundTrip: merged(both.map((direction) => direction.requester?.readRoundTrip)),
      cnpDelay: merged(both.map((direction) => direction.path.congestion.delay)),
      rnrWait: merged(both.map((direction) => direction.requester?.rnrWait)),
      recoveries: both.flatMap(({ record, from, isDoubled }) =>
        record.recoveries.kept.map((recovery) => {
          const { episode: _, ...shown } = recovery;
          return { from, ...shown, reason: reasonOf(recovery, isDoubled).reason };
        }),
      ),
      stalls: both
        .flatMap(({ requester, from }) =>
          (requester?.stalls.longest ?? []).map((stall) => ({ from, ...stall })),
        )
        .sort((x, y) => y.duration - x.duration),
      plot: both
        .flatMap((direction) => direction.record.plot.points(direction.from, shiftOf(direction)))
        .sort(byTime),
      throughput: throughputOf(ab, ba),
      latency: both.flatMap((direction) => direction.record.latencies.series.points).sort(byTime),
      messages,
      ladder: ladderOf(both, messages),
      verdict: NOT_KNOWN,
      ended: undefined,
    };
  }
}

/** Until the verdicts are made: they need all connections. */
const NOT_KNOWN: Verdict = {
  kind: 'not-known',
  certainty: 'not-known',
  severity: undefined,
  text: 'not known',
  culprit: undefined,
  connection: undefined,
  chain: [],
  also: [],
  hint: undefined,
};

function pathOf(direction: Direction | undefined): DirectionPath | undefined {
  if (direction === undefined) return undefined;
  const { vlan, tunnel, vni, network } = direction.key;
  const { classes, ecn } = direction.path.traffic;
  return { vlan, tunnel, vni, network, classes, ecn };
}

const byTime = (x: { time: number }, y: { time: number }): number => x.time - y.time;

/** The end that `out` comes from. */
function endpoint(out: Direction | undefined, back: Direction | undefined, addresses: Addresses): Endpoint {
  return {
    address: addresses.text(out?.key.source ?? back!.key.destination),
    qpn: back?.key.destQp ?? out?.search.sourceQp ?? -1,
  };
}

function merged(builders: (DistributionBuilder | undefined)[]): ReturnType<DistributionBuilder['result']> {
  const [one, two] = builders.filter((builder) => builder !== undefined && builder.count > 0);
  return two === undefined ? one?.result() : DistributionBuilder.merged(one!, two).result();
}

/** Both ends unwrap PSNs from their first one on; turns of 2^24 between them come out here. */
function shiftOf(direction: Direction): number {
  const requester = direction.peer?.requester;
  if (requester === undefined || direction.answers.psn < 0) return 0;
  const turn = PSN_MASK + 1;
  return Math.round((requester.next - direction.answers.psn) / turn) * turn;
}

function ladderOf(directions: readonly Direction[], messages: readonly Message[]): LadderPacket[] {
  // Whose end a direction is comes to light when it is paired: after its first packets.
  for (const { record, from } of directions) for (const packet of record.ladder.packets) packet.from = from;
  const packets = directions.flatMap((direction) => direction.record.ladder.packets);
  packets.sort((x, y) => x.frame - y.frame || x.part - y.part);
  for (const packet of packets) packet.message = messageOf(packet, messages)?.id;
  return packets;
}

/** The message that a request packet is of, or an answer is to, among those that were kept. */
function messageOf(packet: LadderPacket, messages: readonly Message[]): Message | undefined {
  const isAnswer = packet.aeth !== undefined || packet.opcodeName.includes('Response');
  return messages.find((message) => {
    const length = (message.lastPsn - message.firstPsn) & PSN_MASK;
    const at = (packet.psn - message.firstPsn) & PSN_MASK;
    const fits = at <= length && packet.frame >= message.firstFrame;
    return (
      fits &&
      (isAnswer
        ? message.from !== packet.from
        : message.from === packet.from && packet.frame <= message.lastFrame)
    );
  });
}

function throughputOf(ab: Direction | undefined, ba: Direction | undefined): Connection['throughput'] {
  const { start, span, sums } = commonSums([
    ab?.record.throughput,
    ba?.record.throughput,
    ab?.record.again,
    ba?.record.again,
  ]);
  const [aToB, bToA, againAToB, againBToA] = sums;
  return {
    start,
    span,
    aToB,
    bToA,
    againAToB: ab?.record.again === undefined ? [] : againAToB,
    againBToA: ba?.record.again === undefined ? [] : againBToA,
  };
}
