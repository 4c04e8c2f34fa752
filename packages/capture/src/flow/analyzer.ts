/** RoCE packets in, connections, messages and findings out; memory does not grow with the capture. */
import { AethKind, aethKind, OperationBits, Transport as TransportBits, u24 } from '@node-roce/wire';
import { type Addresses, IcrcVerdict, type RocePacket } from '../read/packet.ts';
import type { Analysis, CaptureSummary, Message, Pairing, RetransmitCause, Transport } from './analysis.ts';
import { CmReader } from './cm.ts';
import { ConnectionBuilder } from './connections.ts';
import { findingsOf } from './findings.ts';
import { Half, type Link } from './half.ts';
import { HalfTable } from './half-table.ts';
import { LadderBudget } from './ladder.ts';
import type { MadeMessage } from './messages.ts';
import { unwrap, unwrapFirst } from './outstanding.ts';
import { Pairer } from './pairing.ts';
import { Requester, Taken } from './requester.ts';
import { applyResponse, countResponse, syndromeOf } from './responses.ts';
import { PlotKind } from './series.ts';

/** What is known of a packet the moment it was added. One object, used again for each. */
export interface PacketVerdict {
  /** Number of its connection; 0: none, or one that is not paired yet. */
  connection: number;
  /** It was sent before. Its cause may come out as `unknown`; it never changes later. */
  retransmission: RetransmitCause | undefined;
  /** A mirror, or the network, shows the same packet twice. */
  repeatedFrame: boolean;
}

/** The two queue pairs of a message; −1 where the capture does not name one. */
export interface MessageQps {
  requester: number;
  responder: number;
}

export interface FlowOptions {
  /** Called for each message at its end; of one connection and direction in the order of PSNs. */
  readonly onMessage?: ((message: Message, qps: MessageQps) => void) | undefined;
  /** Called for each packet. The verdict is one object, used again. */
  readonly onPacket?: ((packet: RocePacket, verdict: PacketVerdict) => void) | undefined;
}

/** Messages that wait for their connection to be paired; then it is settled without. */
const MOST_HELD = 1000;
const QP1 = 1;
/** Directions that are followed, each with some kilobytes; packets of others are counted as of no connection. */
const MOST_DIRECTIONS = 50_000;

/**
 * ```ts
 * const analyzer = new FlowAnalyzer({ onMessage: (message) => console.log(message.operation) });
 * const reader = new PacketReader({ onPacket: (packet) => analyzer.add(packet) });
 * for (const record of records) reader.frame(record);
 * const analysis = analyzer.finish(reader.summary(), reader.addresses);
 * ```
 * or, of a file, `analyzeCapture`.
 */
export class FlowAnalyzer {
  readonly #options: FlowOptions;
  readonly #table = new HalfTable();
  readonly #links: Link[] = [];
  readonly #pairer = new Pairer((half, other, pairing, reason) => this.#join(half, other, pairing, reason));
  readonly #cm = new CmReader();
  readonly #connections = new ConnectionBuilder();
  readonly #budget = new LadderBudget();
  readonly #verdict: PacketVerdict = { connection: 0, retransmission: undefined, repeatedFrame: false };
  #unconnected = 0;
  #tooMany = 0;
  #lastId = 0;

  constructor(options: FlowOptions = {}) {
    this.#options = options;
  }

  /** Takes the next packet of the capture; nothing of it is kept. */
  add(packet: RocePacket): void {
    const verdict = this.#verdict;
    verdict.connection = 0;
    verdict.retransmission = undefined;
    verdict.repeatedFrame = false;
    const half = this.#halfOf(packet);
    if (half === undefined) this.#unconnected++;
    else this.#take(half, packet);
    this.#options.onPacket?.(packet, verdict);
  }

  /**
   * What it all was.
   * @param summary of the reader
   * @param addresses what the numbers in packets stand for: the reader's
   */
  finish(summary: CaptureSummary, addresses: Addresses): Analysis {
    for (const { first, second } of this.#links) {
      if (second === undefined) this.#pairer.settle(first);
    }
    for (const link of this.#links) {
      for (const half of [link.first, link.second]) half?.requester?.finish(lastFailure(half));
    }
    for (const link of this.#links) this.#settle(link);
    const settled = this.#links.filter((link) => link.id > 0).sort((x, y) => x.id - y.id);
    const connections = settled.map((link) => this.#connections.build(link, addresses));
    const findings = findingsOf(settled, connections, summary, this.#tooMany);
    return { summary, findings, connections, unconnected: this.#unconnected };
  }

  #halfOf(packet: RocePacket): Half | undefined {
    const { info } = packet;
    let sourceQp = -1;
    if (info.transport === TransportBits.UD) {
      if (packet.destQp === QP1) {
        const connection = packet.icrc === IcrcVerdict.BAD ? undefined : this.#cm.take(packet);
        if (connection !== undefined) this.#pairer.known(connection);
        return undefined;
      }
      const deth = packet.bth + info.offsets.deth;
      sourceQp = deth + 8 <= packet.end ? u24(packet.bytes, deth + 5) : -1;
    }
    const found = this.#table.find(packet.source, packet.destination, packet.destQp, sourceQp);
    // Neither its queue pair nor its PSN can be believed.
    if (found !== undefined || packet.icrc === IcrcVerdict.BAD) return found;
    if (this.#table.size >= MOST_DIRECTIONS) {
      this.#tooMany++;
      return undefined;
    }
    const half = new Half(packet, sourceQp, this.#budget);
    if (info.transport !== TransportBits.CNP) half.transport = info.transportName as Transport;
    const link: Link = {
      id: 0,
      pairing: 'unpaired',
      pairingReason: 'the capture shows one direction only, or nothing to tell which belong together',
      first: half,
      second: undefined,
      nextMessage: 1,
      held: [],
    };
    half.link = link;
    this.#links.push(link);
    this.#table.add(half);
    this.#pairer.enter(half);
    return half;
  }

  #take(half: Half, packet: RocePacket): void {
    const { counts } = half;
    const { time, info } = packet;
    counts.packets++;
    half.lastFrame = packet.frame;
    half.end = time;
    half.sourcePort = packet.sourcePort;
    const verdict = this.#verdict;
    verdict.connection = half.link.id;
    if (packet.icrc === IcrcVerdict.BAD) {
      counts.icrcBad++;
      half.events.add('icrc-bad', packet.frame, time, 1);
      half.ladder.offer(packet, half.from, true, undefined, false);
      return;
    }
    if (packet.icrc === IcrcVerdict.NONE) counts.icrcUnchecked++;
    if (packet.ecn !== 0) this.#takeEcn(half, packet);
    if (half.ids.isRepeated(packet)) {
      this.#repeated(half, packet);
      return;
    }
    counts.bytes += packet.payloadLength;
    half.throughput.add(time, packet.payloadLength);
    if (info.isResponse) this.#takeResponse(half, packet);
    else if (info.isRequest) this.#takeRequest(half, packet);
    else this.#takeCnp(half, packet);
  }

  #takeEcn({ counts, plot, events, congestion }: Half, packet: RocePacket): void {
    counts.ecnCapable++;
    if (packet.ecn !== 3) return;
    counts.ecnMarked++;
    congestion.marked(packet.time);
    events.add('ecn-marked', packet.frame, packet.time, 1);
    plot.add(packet.time, unwrapFirst(packet.psn), packet.frame, PlotKind.MARKED);
  }

  #repeated(half: Half, packet: RocePacket): void {
    half.counts.repeatedFrames++;
    half.events.add('repeated-frame', packet.frame, packet.time, 1);
    this.#verdict.repeatedFrame = true;
    half.ladder.offer(packet, half.from, false, undefined, true);
  }

  #takeRequest(half: Half, packet: RocePacket): void {
    half.counts.requests++;
    if (half.transport === undefined) half.transport = packet.info.transportName as Transport;
    if (half.transport === 'UD') {
      this.#takeDatagram(half, packet);
      return;
    }
    half.requester ??= this.#newRequester(half);
    const { requester } = half;
    if (half.peer === undefined) this.#pairer.sent(half, packet.psn);
    const taken = requester.take(packet, half.ids);
    const opposite = half.peer?.requester;
    if (opposite !== undefined && opposite.pathMtu !== requester.pathMtu) sharePathMtu(requester, opposite);
    if (taken === Taken.REPEATED) {
      half.counts.requests--;
      half.counts.bytes -= packet.payloadLength;
      this.#repeated(half, packet);
      return;
    }
    const again = taken === Taken.RETRANSMISSION;
    if (again) this.#verdict.retransmission = requester.cause;
    const kind = again ? PlotKind.RETRANSMISSION : PlotKind.REQUEST;
    half.plot.add(packet.time, unwrap(packet.psn, requester.next), packet.frame, kind);
    half.ladder.offer(packet, half.from, again, this.#verdict.retransmission, false);
  }

  #newRequester(half: Half): Requester {
    const requester = new Requester(half.counts, half.events, half.reliable, (message) =>
      this.#made(half, message),
    );
    requester.hasAnswers = half.peer !== undefined;
    const { cm } = half;
    if (cm !== undefined) {
      requester.pathMtu = cm.pathMtu;
      requester.recovery.ackTimeout = cm.ackTimeout === 0 ? 0 : 4096 * 2 ** cm.ackTimeout;
    }
    const known = half.peer?.requester?.pathMtu;
    if (known !== undefined && known > 0) requester.pathMtu = known;
    return requester;
  }

  /** Each datagram is a message; its PSN counts all that its sender sends to anyone. */
  #takeDatagram(half: Half, packet: RocePacket): void {
    const { psn, frame, time } = packet;
    half.plot.add(time, unwrapFirst(psn), frame, PlotKind.REQUEST);
    half.ladder.offer(packet, half.from, false, undefined, false);
    half.requester ??= this.#newRequester(half);
    const { requester } = half;
    requester.messages.whole({
      operation: packet.info.hasImmediate ? 'SEND_WITH_IMM' : 'SEND',
      bytes: packet.payloadLength,
      firstPsn: psn,
      lastPsn: psn,
      packets: 1,
      retransmitted: 0,
      firstFrame: frame,
      lastFrame: frame,
      start: time,
      end: time,
      latency: undefined,
      outcome: 'completed',
      failure: undefined,
    });
  }

  #takeResponse(half: Half, packet: RocePacket): void {
    const { frame, time, psn, info } = packet;
    half.transport ??= info.transportName as Transport;
    const syndrome = syndromeOf(packet);
    countResponse(half, packet, syndrome);
    const operation = info.operation;
    if (half.peer !== undefined) {
      learnPathMtu(half.peer, packet);
      applyResponse(half, { psn, time, frame, operation, last: info.last, syndrome });
    } else {
      this.#pairer.response(half, { psn, time, frame, operation, last: info.last, syndrome });
    }
    half.responsePsn = half.responsePsn < 0 ? unwrapFirst(psn) : unwrap(psn, half.responsePsn);
    const kind = plotKindOf(operation, syndrome);
    half.plot.add(time, half.responsePsn, frame, kind);
    const special = kind === PlotKind.NAK || kind === PlotKind.RNR;
    half.ladder.offer(packet, half.from, special, undefined, false);
  }

  #takeCnp(half: Half, packet: RocePacket): void {
    half.counts.cnps++;
    half.events.add('cnp', packet.frame, packet.time, 1);
    half.peer?.congestion.notified(packet.time);
    const { requester, responsePsn } = half;
    const psn = responsePsn >= 0 ? responsePsn : (requester?.next ?? unwrapFirst(packet.psn));
    half.plot.add(packet.time, psn, packet.frame, PlotKind.CNP);
    half.ladder.offer(packet, half.from, true, undefined, false);
  }

  #made(half: Half, message: MadeMessage): void {
    const { link } = half;
    if (link.id > 0) {
      this.#hand(half, message);
      return;
    }
    link.held.push({ half, message });
    if (link.held.length < MOST_HELD) return;
    if (link.second === undefined) this.#pairer.settle(link.first);
    if (half.link.id === 0) this.#settle(half.link);
  }

  #hand(half: Half, made: MadeMessage): void {
    const { link } = half;
    const message: Message = { id: link.nextMessage++, connection: link.id, from: half.from, ...made };
    if (message.latency !== undefined) half.latency.add(message.end, message.latency, message.id);
    this.#connections.keep(message);
    this.#options.onMessage?.(message, { requester: half.sourceQp, responder: half.destQp });
  }

  #join(half: Half, other: Half, pairing: Pairing, reason: string): void {
    const [first, second] = half.firstFrame <= other.firstFrame ? [half, other] : [other, half];
    // Two that were handed out under different numbers stay apart.
    if (first.link.id > 0 && second.link.id > 0) return;
    const link = first.link.id > 0 || second.link.id === 0 ? first.link : second.link;
    const gone = link === first.link ? second.link : first.link;
    link.first = first;
    link.second = second;
    link.pairing = pairing;
    link.pairingReason = reason;
    link.held.push(...gone.held);
    this.#links.splice(this.#links.indexOf(gone), 1);
    for (const one of [first, second]) {
      const opposite = one === first ? second : first;
      one.link = link;
      one.peer = opposite;
      one.sourceQp = opposite.destQp;
      if (one.requester !== undefined) one.requester.hasAnswers = true;
    }
    const transport = first.transport ?? second.transport;
    first.transport = transport;
    second.transport = transport;
    this.#settle(link);
  }

  /** From here on it has a number. */
  #settle(link: Link): void {
    if (link.id === 0) link.id = ++this.#lastId;
    const { held } = link;
    link.held = [];
    for (const { half, message } of held) this.#hand(half, message);
  }
}

/** Why what is out at the capture's end failed; undefined if it may have gone on. */
function lastFailure({ requester, reliable, peer }: Half): string | undefined {
  const oldest = requester?.oldest;
  if (requester === undefined || oldest === undefined || !reliable) return undefined;
  const rnr = requester.recovery.rnrSince(oldest.psn);
  if (rnr >= oldest.time && oldest.sends > 1) return 'rnr-retries-exceeded';
  const answered = peer?.end ?? Number.NEGATIVE_INFINITY;
  return oldest.sends > 2 && answered < oldest.time ? 'retries-exceeded' : undefined;
}

/** Both directions have the same. */
function sharePathMtu(one: Requester, other: Requester): void {
  if (one.pathMtu > 0) other.learnPathMtu(one.pathMtu);
  else one.learnPathMtu(other.pathMtu);
}

/** READ responses that are not the last have just the path MTU. */
function learnPathMtu(half: Half, { info, payloadLength }: RocePacket): void {
  const { requester } = half;
  if (requester === undefined || requester.pathMtu > 0 || !info.isReadResponse || info.last) return;
  if (payloadLength >= 256 && (payloadLength & (payloadLength - 1)) === 0)
    requester.learnPathMtu(payloadLength);
}

function plotKindOf(operation: number, syndrome: number): number {
  if (operation !== OperationBits.ACKNOWLEDGE) return PlotKind.RESPONSE;
  if (syndrome < 0 || aethKind(syndrome) === AethKind.ACK) return PlotKind.ACK;
  return aethKind(syndrome) === AethKind.RNR_NAK ? PlotKind.RNR : PlotKind.NAK;
}
