/** RoCE packets in, connections, messages and findings out; memory does not grow with the capture. */
import {
  AethKind,
  aethKind,
  ECN_CE,
  ICRC_BYTES,
  OperationBits,
  rethVaHigh,
  rethVaLow,
  Transport as TransportBits,
  u24,
} from '@node-roce/wire';
import type { IcmpError as IcmpPacket } from '../read/icmp.ts';
import { type Addresses, IcrcVerdict, type RocePacket } from '../read/packet.ts';
import type { PauseFrame } from '../read/pause.ts';
import type {
  Analysis,
  CaptureSummary,
  Grade,
  Message,
  Pairing,
  RetransmitCause,
  Transport,
} from './analysis.ts';
import { ConnectionBuilder } from './connections.ts';
import { clockFindings } from './findings/capture.ts';
import { cmFindings } from './findings/cm.ts';
import { findingsOf } from './findings/index.ts';
import { pauseFindings } from './findings/pause.ts';
import { IcmpErrors } from './icmp.ts';
import { overviewOf } from './overview.ts';
import { type CmConnection, CmReader } from './pair/cm.ts';
import { CmExchanges } from './pair/cm-exchanges.ts';
import { DirectionPairer } from './pair/pairing.ts';
import { Clock } from './record/clock.ts';
import { PathFacts } from './record/path-facts.ts';
import { PauseCounts } from './record/pauses.ts';
import { recordRepeated, recordRequest } from './record/recorder.ts';
import { BinnedSums, PlotKind } from './record/series.ts';
import { isLikeAckTimeout } from './record/timers.ts';
import { Budgets, type ConnectionState, Direction } from './track/direction.ts';
import { DirectionTable } from './track/direction-table.ts';
import { IcrcTrial } from './track/icrc-trial.ts';
import { lastFailure } from './track/last-failure.ts';
import type { UnnumberedMessage } from './track/messages.ts';
import { unwrap, unwrapFirst } from './track/outstanding.ts';
import { RequesterTracker } from './track/requester-tracker.ts';
import { applyResponse, countResponse, syndromeOf } from './track/responses.ts';
import { Taken, Verdict } from './track/verdict.ts';
import type { WrongCm } from './verdict/capture-causes.ts';
import { verdictsOf } from './verdict/index.ts';

/** The verdict on a packet the moment it was added. One object, used again for each. */
export interface PacketVerdict {
  /** Number of its connection; 0: none, or one that is not paired yet. */
  connection: number;
  /** It was sent before. Its cause may come out as `unknown`; it never changes later. */
  retransmission: RetransmitCause | undefined;
  /** How sure the cause is; undefined if it is no retransmission. */
  grade: Grade | undefined;
  /** The frame that shows the cause; 0: none. */
  evidence: number;
  /** The requester went back with it. */
  begins: boolean;
  /** A mirror, or the network, shows the same packet twice. */
  repeatedFrame: boolean;
}

/** The two queue pairs of a message; −1 where the capture does not name one. */
export interface MessageQps {
  requester: number;
  responder: number;
  /** Numbers of their addresses in the reader's table. */
  requesterAddress: number;
  responderAddress: number;
}

export interface FlowOptions {
  /** Called for each message at its end; of one connection and direction in the order of PSNs. */
  readonly onMessage?: ((message: Message, qps: MessageQps) => void) | undefined;
  /** Called for each packet. The verdict is one object, used again. */
  readonly onPacket?: ((packet: RocePacket, verdict: PacketVerdict) => void) | undefined;
}

/** Messages that wait for their connection to be paired; then it is settled without. */
const MAX_PENDING_MESSAGES = 1000;
/** The same of all connections together. */
const MAX_ALL_PENDING = 50_000;
const QP1 = 1;
/**
 * After so long without a packet, ns, queue pair numbers may be those of another connection; and after so long nothing is retransmitted
 * any more: the timer of `timeout` 21 takes 8.6 s, that of an adapter up to four times as long (IBTA vol 1 §9.7.6.1.3).
 */
const REUSE_PAUSE = 5e9;
const LONGEST_TIMER = 35e9;
/** Directions that are followed, each with about 10 kB; packets of others are counted as of no connection. */
const MAX_DIRECTIONS = 20_000;

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
  readonly #table = new DirectionTable();
  readonly #states: ConnectionState[] = [];
  readonly #pairer = new DirectionPairer((direction, other, pairing, reason) =>
    this.#join(direction, other, pairing, reason),
  );
  readonly #cm = new CmReader();
  readonly #connections = new ConnectionBuilder();
  readonly #budgets = new Budgets();
  readonly #exchanges = new CmExchanges();
  readonly #pauses = new PauseCounts();
  readonly #clock = new Clock();
  readonly #icmp = new IcmpErrors();
  /** Address pairs that a packet with a right ICRC was seen between: a wrong one is then damage. */
  readonly #right = new Set<number>();
  /** The first sender of messages of the connection manager whose ICRCs are wrong. */
  #cmTrial: { source: number; key: number; frame: number; trial: IcrcTrial } | undefined;
  /** The captured bytes of cut frames, if always as many; 0: none was cut, −1: several lengths. */
  #cutLength = 0;
  /** When something of an address was last seen. */
  #heard = new Float64Array(64).fill(Number.NEGATIVE_INFINITY);
  /** Requesters put their verdicts in here. */
  readonly #request = new Verdict();
  readonly #verdict: PacketVerdict = {
    connection: 0,
    retransmission: undefined,
    grade: undefined,
    evidence: 0,
    begins: false,
    repeatedFrame: false,
  };
  #unconnected = 0;
  #directions = 0;
  #tooMany = 0;
  /** Messages that wait, of all connections. */
  #pendingMessages = 0;
  #lastId = 0;

  constructor(options: FlowOptions = {}) {
    this.#options = options;
  }

  /** Takes the next packet of the capture; nothing of it is kept. */
  add(packet: RocePacket): void {
    this.#clock.note(packet.time);
    const verdict = this.#verdict;
    verdict.connection = 0;
    verdict.retransmission = undefined;
    verdict.grade = undefined;
    verdict.evidence = 0;
    verdict.begins = false;
    verdict.repeatedFrame = false;
    const direction = this.#directionOf(packet);
    if (direction === undefined) this.#unconnected++;
    else this.#take(direction, packet);
    if (packet.icrc !== IcrcVerdict.BAD) this.#hear(packet);
    if (packet.icrc === IcrcVerdict.NONE) this.#noteCut(packet);
    this.#options.onPacket?.(packet, verdict);
  }

  /** Takes the next pause frame; nothing of it is kept. */
  addPause(pause: PauseFrame): void {
    this.#pauses.add(pause);
  }

  /** Takes the next ICMP error about a RoCE packet; nothing of it is kept. */
  addIcmp(error: IcmpPacket): void {
    this.#icmp.take(error);
  }

  /**
   * Returns the finished analysis.
   * @param summary of the reader
   * @param addresses what the numbers in packets stand for: the reader's
   */
  finish(summary: CaptureSummary, addresses: Addresses): Analysis {
    for (const { first, second } of this.#states) {
      if (second === undefined && !first.isOver) this.#pairer.settle(first);
    }
    for (const connection of this.#states) {
      for (const direction of [connection.first, connection.second]) {
        if (direction?.requester === undefined) continue;
        direction.lastFailure = lastFailure(direction, summary.duration);
        direction.requester.finish(direction.lastFailure?.failure);
      }
      for (const direction of [connection.first, connection.second]) direction?.recoveries.close();
    }
    for (const connection of this.#states) if (!this.#isGhost(connection)) this.#settle(connection);
    const settled = this.#states.filter((connection) => connection.id > 0).sort((x, y) => x.id - y.id);
    const connections = settled.map((connection) => this.#connections.build(connection, addresses));
    const pauses = this.#pauses.senders((mac) => this.#addressesOf(mac, addresses));
    const exchanges = this.#exchanges.results(addresses);
    const others = [
      ...pauseFindings(pauses),
      ...cmFindings(exchanges, this.#exchanges.gaps(addresses), summary.duration),
      ...clockFindings(this.#clock),
    ];
    if (this.#cutLength > 0) summary.cutLength = this.#cutLength;
    const verdicts = verdictsOf({
      states: settled,
      connections,
      summary,
      exchanges,
      pauses,
      icmp: this.#icmp.all(addresses),
      findings: others,
      addresses,
      isOutOfOrder: this.#clock.stepsBack > 0,
      wrongCm: this.#wrongCmOf(addresses),
    });
    const findings = findingsOf(settled, connections, summary, this.#tooMany, [
      ...others,
      ...verdicts.findings,
    ]);
    return {
      verdict: verdicts.finish(findings),
      summary,
      overview: overviewOf(connections),
      findings,
      connections,
      exchanges,
      pauses,
      unconnected: this.#unconnected,
    };
  }

  /** A message of the connection manager with a wrong ICRC, of a sender that has had no right one. */
  #tryCm(packet: RocePacket): void {
    this.#cmTrial ??= {
      source: packet.source,
      key: pairKey(packet),
      frame: packet.frame,
      trial: new IcrcTrial(),
    };
    if (this.#cmTrial.source === packet.source) this.#cmTrial.trial.try(packet);
  }

  #wrongCmOf(addresses: Addresses): WrongCm | undefined {
    const found = this.#cmTrial;
    if (found === undefined || this.#right.has(found.key)) return undefined;
    return { source: addresses.text(found.source), trial: found.trial, frame: found.frame };
  }

  /** One packet or two with wrong ICRCs, between addresses that have right ones as well: their queue pair numbers are damaged. */
  #isGhost({ id, first, second }: ConnectionState): boolean {
    if (id > 0 || first.trial === undefined || second !== undefined) return false;
    const isGhost = first.counts.packets < 2 || this.#right.has(pairKey(first));
    if (isGhost) this.#unconnected += first.counts.packets;
    return isGhost;
  }

  /** Addresses whose packets had this source MAC address, by the first packet of each direction. */
  #addressesOf(mac: number, addresses: Addresses): string[] {
    const found = new Set<string>();
    for (const { first, second } of this.#states) {
      for (const direction of [first, second])
        if (direction?.mac === mac && found.size < 10) found.add(addresses.text(direction.source));
    }
    return [...found];
  }

  #noteCut({ payload, payloadLength, padCount, end, frameLength }: RocePacket): void {
    if (payload + payloadLength + padCount + ICRC_BYTES <= end) return;
    if (this.#cutLength === 0) this.#cutLength = frameLength;
    else if (this.#cutLength !== frameLength) this.#cutLength = -1;
  }

  #hear({ source, time }: RocePacket): void {
    if (source >= this.#heard.length) {
      const more = new Float64Array(2 * source).fill(Number.NEGATIVE_INFINITY);
      more.set(this.#heard);
      this.#heard = more;
    }
    this.#heard[source] = time;
  }

  #directionOf(packet: RocePacket): Direction | undefined {
    const { info } = packet;
    let sourceQp = -1;
    if (info.transport === TransportBits.UD) {
      if (packet.destQp === QP1) {
        if (packet.icrc !== IcrcVerdict.BAD) this.#right.add(pairKey(packet));
        else if (this.#right.has(pairKey(packet))) return undefined;
        else this.#tryCm(packet);
        this.#exchanges.take(packet);
        const connection = this.#cm.take(packet);
        if (connection !== undefined) {
          this.#endBefore(connection);
          this.#pairer.known(connection);
        }
        return undefined;
      }
      const deth = packet.bth + info.offsets.deth;
      sourceQp = deth + 8 <= packet.end ? u24(packet.bytes, deth + 5) : -1;
    }
    const found = this.#table.find(
      packet.source,
      packet.destination,
      packet.destQp,
      sourceQp,
      packet.network,
    );
    // Neither its queue pair nor its PSN can be believed, unless no ICRC of its sender is ever right.
    const isBad = packet.icrc === IcrcVerdict.BAD;
    if (isBad && (found !== undefined || this.#right.has(pairKey(packet)) || !isPlausible(packet)))
      return found;
    const isReused = found !== undefined && isReuse(found, packet);
    if (found !== undefined && !found.isOver && !isReused) return found;
    if (this.#directions === MAX_DIRECTIONS) {
      this.#tooMany++;
      return undefined;
    }
    this.#directions++;
    const direction = new Direction(packet, sourceQp, this.#budgets);
    if (!isBad) this.#right.add(pairKey(packet));
    if (info.transport !== TransportBits.CNP) direction.transport = info.transportName as Transport;
    const connection: ConnectionState = {
      id: 0,
      pairing: 'unpaired',
      pairingReason:
        'the capture shows one direction only, or no evidence of which directions belong together',
      presumed: false,
      presumedFits: 0,
      first: direction,
      second: undefined,
      nextMessage: 1,
      pendingMessages: [],
    };
    direction.connection = connection;
    this.#states.push(connection);
    if (found === undefined) {
      this.#table.add(direction);
    } else {
      this.#table.replace(found, direction);
      if (isReused) this.#end(found);
      this.#follow(found, direction, isReused);
    }
    this.#pairer.enter(direction);
    return direction;
  }

  /** The connection manager gives queue pair numbers to a new connection: one that had them before is over. */
  #endBefore(connection: CmConnection): void {
    const { active, passive, networks, exchange, requested } = connection;
    for (const [from, to, network] of [
      [active, passive, networks[0]],
      [passive, active, networks[1]],
    ] as const) {
      const found = this.#table.find(from.address, to.address, to.qpn, -1, network);
      // REQ and REP may come again, and the file may have packets of the connection before the REP.
      if (found === undefined || found.isOver || found.start >= requested || found.cm?.exchange === exchange)
        continue;
      this.#end(found);
    }
  }

  /** The connection of this direction is over. */
  #end(direction: Direction): void {
    for (const one of [direction, direction.peer]) {
      if (one === undefined) continue;
      one.isOver = true;
      this.#pairer.leave(one);
    }
  }

  /**
   * `next` has the queue pairs of a direction that is over: the first packet of another connection, or the first against that one.
   * @param isPresumed after a pause and with a PSN that does not go on; else the connection manager's messages show it
   */
  #follow(direction: Direction, next: Direction, isPresumed: boolean): void {
    if (direction.isFollowed) return;
    for (const one of [direction, direction.peer]) if (one !== undefined) one.isFollowed = true;
    const event = isPresumed ? 'reuse-presumed' : 'reused';
    next.events.add(event, next.firstFrame, next.start, next.start - lastTimeOf(direction));
  }

  #take(direction: Direction, packet: RocePacket): void {
    const { counts } = direction;
    const { time, info } = packet;
    counts.packets++;
    direction.traffic.add(packet);
    if (this.#pauses.frames > 0)
      this.#pauses.passed(direction.mac, direction.facts.toMac, packet.frame, time);
    direction.lastFrame = packet.frame;
    direction.end = time;
    direction.sourcePort = packet.sourcePort;
    const verdict = this.#verdict;
    verdict.connection = direction.connection.id;
    if (packet.icrc === IcrcVerdict.BAD) {
      counts.icrcBad++;
      direction.events.add('icrc-bad', packet.frame, time, 1);
      if (direction.trial !== undefined) {
        counts.icrcTaken++;
        direction.trial.try(packet);
      }
    } else if (direction.trial !== undefined) {
      direction.trial = undefined;
      direction.facts = new PathFacts(packet);
      this.#right.add(pairKey(packet));
    }
    if (packet.icrc === IcrcVerdict.BAD && direction.trial === undefined) {
      const damaged = info.isResponse
        ? direction.peer?.requester?.damagedAnswers
        : direction.requester?.damaged;
      damaged?.add(packet.psn, packet.frame, time);
      direction.ladder.offer(packet, direction.from, true, undefined, false);
      return;
    }
    direction.facts.add(packet);
    if (packet.flushTwice) direction.events.add('flush-twice', packet.frame, time, 1);
    if ((info.isFlush || info.isAtomicWrite) && hasNoAddress(packet))
      direction.events.add('no-address', packet.frame, time, 1);
    if (packet.icrc === IcrcVerdict.NONE) counts.icrcUnchecked++;
    if (packet.ecn !== 0) this.#takeEcn(direction, packet);
    if (direction.ids.isRepeated(packet) || isMirrored(direction, packet)) {
      recordRepeated(direction, packet);
      this.#verdict.repeatedFrame = true;
      return;
    }
    counts.bytes += packet.payloadLength;
    direction.throughput.add(time, packet.payloadLength);
    if (info.isResponse) this.#takeResponse(direction, packet);
    else if (info.isRequest) this.#takeRequest(direction, packet);
    else this.#takeCnp(direction, packet);
  }

  #takeEcn({ counts, plot, events, congestion }: Direction, packet: RocePacket): void {
    counts.ecnCapable++;
    if (packet.ecn !== ECN_CE) return;
    counts.ecnMarked++;
    congestion.marked(packet.time);
    events.add('ecn-marked', packet.frame, packet.time, 1);
    plot.add(packet.time, unwrapFirst(packet.psn), packet.frame, PlotKind.MARKED);
  }

  #takeRequest(direction: Direction, packet: RocePacket): void {
    direction.counts.requests++;
    if (direction.transport === undefined) direction.transport = packet.info.transportName as Transport;
    if (direction.transport === 'UD') {
      this.#takeDatagram(direction, packet);
      return;
    }
    direction.requester ??= this.#newRequester(direction);
    const { requester } = direction;
    if (direction.peer === undefined) this.#pairer.sent(direction, packet.psn);
    const request = this.#request;
    request.reset();
    const idle = requester.hasAnswers ? idleOf(direction, packet.time) : 0;
    requester.take(packet, direction.ids);
    if (request.taken === Taken.NEW && isLikeAckTimeout(idle, requester.classifier.ackTimeout))
      direction.events.add('idle-like-timeout', packet.frame, packet.time, idle);
    // Times that go back are no evidence.
    if (this.#clock.stepsBack > 0 && request.grade === 'certain') request.grade = 'likely';
    const opposite = direction.peer?.requester;
    if (opposite !== undefined && opposite.pathMtu !== requester.pathMtu) sharePathMtu(requester, opposite);
    recordRequest(direction, packet, request);
    const verdict = this.#verdict;
    verdict.repeatedFrame = request.taken === Taken.REPEATED;
    if (request.taken !== Taken.RETRANSMISSION) return;
    direction.again ??= new BinnedSums();
    direction.again.add(packet.time, packet.payloadLength);
    verdict.retransmission = request.cause;
    verdict.grade = request.grade;
    verdict.evidence = request.evidenceFrame;
    verdict.begins = request.begins;
  }

  #newRequester(direction: Direction): RequesterTracker {
    const requester = new RequesterTracker(
      direction.counts,
      direction.events,
      direction.reliable,
      this.#request,
      (message) => this.#messageEnded(direction, message),
    );
    requester.hasAnswers = direction.peer !== undefined;
    const { cm } = direction;
    if (cm !== undefined) {
      requester.pathMtu = cm.pathMtu;
      requester.classifier.ackTimeout = cm.ackTimeout === 0 ? 0 : 4096 * 2 ** cm.ackTimeout;
    }
    const known = direction.peer?.requester?.pathMtu;
    if (known !== undefined && known > 0) requester.pathMtu = known;
    return requester;
  }

  /** Each datagram is a message; its PSN counts all that its sender sends to anyone. */
  #takeDatagram(direction: Direction, packet: RocePacket): void {
    const { psn, frame, time } = packet;
    direction.plot.add(time, unwrapFirst(psn), frame, PlotKind.REQUEST);
    direction.ladder.offer(packet, direction.from, false, undefined, false);
    direction.requester ??= this.#newRequester(direction);
    const { requester } = direction;
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
      ackRoundTrip: undefined,
      outcome: 'seen-whole',
      failure: undefined,
    });
  }

  #takeResponse(direction: Direction, packet: RocePacket): void {
    const { frame, time, psn, info } = packet;
    const asked = direction.peer?.requester;
    if (asked?.episodes.isWaiting) asked.peerHeard = this.#heard[packet.source];
    direction.transport ??= info.transportName as Transport;
    const syndrome = syndromeOf(packet);
    countResponse(direction, packet, syndrome);
    const operation = info.operation;
    const response = { psn, time, frame, operation, last: info.last, syndrome };
    if (direction.peer !== undefined) {
      learnPathMtu(direction.peer, packet);
      if (direction.connection.presumed) this.#pairer.confirm(direction, response);
      applyResponse(direction, response);
    } else {
      this.#pairer.response(direction, response);
    }
    direction.responsePsn = direction.responsePsn < 0 ? unwrapFirst(psn) : unwrap(psn, direction.responsePsn);
    const kind = plotKindOf(operation, syndrome);
    direction.plot.add(time, direction.responsePsn, frame, kind);
    const special = kind === PlotKind.NAK || kind === PlotKind.RNR;
    direction.ladder.offer(packet, direction.from, special, undefined, false);
  }

  #takeCnp(direction: Direction, packet: RocePacket): void {
    direction.counts.cnps++;
    direction.events.add('cnp', packet.frame, packet.time, 1);
    direction.peer?.congestion.notified(packet.time);
    const { requester, responsePsn } = direction;
    const psn = responsePsn >= 0 ? responsePsn : (requester?.next ?? unwrapFirst(packet.psn));
    direction.plot.add(packet.time, psn, packet.frame, PlotKind.CNP);
    direction.ladder.offer(packet, direction.from, true, undefined, false);
  }

  #messageEnded(direction: Direction, message: UnnumberedMessage): void {
    const { connection } = direction;
    if (connection.id > 0) {
      this.#emit(direction, message);
      return;
    }
    connection.pendingMessages.push({ direction, message });
    const all = ++this.#pendingMessages;
    if (connection.pendingMessages.length < MAX_PENDING_MESSAGES && all < MAX_ALL_PENDING) return;
    if (connection.second === undefined) this.#pairer.settle(connection.first);
    if (direction.connection.id === 0) this.#settle(direction.connection);
  }

  #emit(direction: Direction, made: UnnumberedMessage): void {
    const { connection } = direction;
    const message: Message = {
      id: connection.nextMessage++,
      connection: connection.id,
      from: direction.from,
      ...made,
    };
    const { latency, ackRoundTrip, operation } = message;
    if (latency !== undefined) {
      const time = message.start + latency;
      direction.latency.add({ time, nanoseconds: latency, ackRoundTrip, message: message.id, operation });
      direction.completion.add(latency);
      direction.latencyClasses.add(operation, message.bytes ?? 0, latency);
    }
    this.#connections.keep(message);
    this.#options.onMessage?.(message, {
      requester: direction.sourceQp,
      responder: direction.destQp,
      requesterAddress: direction.source,
      responderAddress: direction.destination,
    });
  }

  #join(direction: Direction, other: Direction, pairing: Pairing, reason: string): void {
    const [first, second] =
      direction.firstFrame <= other.firstFrame ? [direction, other] : [other, direction];
    // Two that were handed out under different numbers stay apart.
    if (first.connection.id > 0 && second.connection.id > 0) return;
    const connection =
      first.connection.id > 0 || second.connection.id === 0 ? first.connection : second.connection;
    const gone = connection === first.connection ? second.connection : first.connection;
    connection.first = first;
    connection.second = second;
    connection.pairing = pairing;
    connection.pairingReason = reason;
    connection.pendingMessages.push(...gone.pendingMessages);
    this.#states.splice(this.#states.indexOf(gone), 1);
    for (const one of [first, second]) {
      const opposite = one === first ? second : first;
      one.connection = connection;
      one.peer = opposite;
      one.sourceQp = opposite.destQp;
      if (one.requester !== undefined) one.requester.hasAnswers = true;
    }
    const transport = first.transport ?? second.transport;
    first.transport = transport;
    second.transport = transport;
    this.#settle(connection);
  }

  /** From here on it has a number. */
  #settle(connection: ConnectionState): void {
    if (connection.id === 0) connection.id = ++this.#lastId;
    const { pendingMessages } = connection;
    connection.pendingMessages = [];
    this.#pendingMessages -= pendingMessages.length;
    for (const { direction, message } of pendingMessages) this.#emit(direction, message);
  }
}

/** Two addresses as one number: address numbers have 16 bits. */
const pairKey = ({ source, destination }: { source: number; destination: number }): number =>
  source * 65_536 + destination;

/** The reserved bits of a BTH are 0: other traffic on the port hardly ever looks so (IBTA vol 1 §9.2). */
const isPlausible = ({ bytes, bth, pkey }: RocePacket): boolean =>
  (bytes[bth + 1] & 0x0f) === 0 &&
  (bytes[bth + 4] & 0x3f) === 0 &&
  (bytes[bth + 8] & 0x7f) === 0 &&
  pkey !== 0;

const lastTimeOf = ({ end, peer }: Direction): number => Math.max(end, peer?.end ?? end);

/** Whether a packet begins another connection than the one that has had its queue pairs: after a pause, with a PSN that does not go on. */
function isReuse(direction: Direction, { info, psn, time }: RocePacket): boolean {
  const { requester, isOver } = direction;
  if (isOver || !info.isRequest || !info.first || requester?.started !== true) return false;
  const pause = time - lastTimeOf(direction);
  if (pause < REUSE_PAUSE || direction.transport === 'UD') return false;
  const timer = Math.max(LONGEST_TIMER, 4 * requester.classifier.ackTimeout);
  const unacked = direction.reliable ? requester.unacked : requester.next;
  return !requester.mayGoOn(psn, unacked, pause > timer || !direction.reliable);
}

/** Whether a packet is the copy of a response or CNP, in a mirror of two ports that shows the requests twice. */
function isMirrored({ peer, ids, counts, responses }: Direction, packet: RocePacket): boolean {
  if (packet.info.isRequest || ids.areDistinct) return false;
  if (peer === undefined) {
    if (counts.responses === 0) responses.first(packet);
    return false;
  }
  return peer.counts.repeatedFrames * 2 > peer.counts.packets && responses.isCopy(packet);
}

/** For how long nothing happened in a connection with nothing outstanding; 0: something is, or the capture begins. */
function idleOf({ requester, peer }: Direction, time: number): number {
  const idle = requester?.stalls.idle(time) ?? 0;
  return peer?.requester === undefined ? idle : Math.min(idle, peer.requester.stalls.idle(time));
}

/** Both directions have the same. */
function sharePathMtu(one: RequesterTracker, other: RequesterTracker): void {
  if (one.pathMtu > 0) other.learnPathMtu(one.pathMtu);
  else one.learnPathMtu(other.pathMtu);
}

/** READ responses that are not the last have just the path MTU. */
function learnPathMtu(direction: Direction, { info, payloadLength }: RocePacket): void {
  const { requester } = direction;
  if (requester === undefined || requester.pathMtu > 0 || !info.isReadResponse || info.last) return;
  if (payloadLength >= 256 && (payloadLength & (payloadLength - 1)) === 0)
    requester.learnPathMtu(payloadLength);
}

function plotKindOf(operation: number, syndrome: number): number {
  if (operation !== OperationBits.ACKNOWLEDGE) return PlotKind.RESPONSE;
  if (syndrome < 0 || aethKind(syndrome) === AethKind.ACK) return PlotKind.ACK;
  return aethKind(syndrome) === AethKind.RNR_NAK ? PlotKind.RNR : PlotKind.NAK;
}

/** A FLUSH or ATOMIC_WRITE to the address 0. */
function hasNoAddress({ bytes, bth, end, info }: RocePacket): boolean {
  const at = bth + info.offsets.reth;
  return at + 8 <= end && rethVaHigh(bytes, at) === 0 && rethVaLow(bytes, at) === 0;
}
