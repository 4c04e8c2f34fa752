/** Takes the packets of directions: who counts a packet, who judges it, and where it is recorded. */
import { AethKind, aethKind, OperationBits, rethVaHigh, rethVaLow } from '@node-roce/wire';
import { IcrcVerdict, type RocePacket } from '../../read/packet.ts';
import type { Grade, RetransmitCause, Transport } from '../facts.ts';
import type { DirectionPairer } from '../pair/pairing.ts';
import type { Clock } from '../record/clock.ts';
import type { PauseCounts } from '../record/pauses.ts';
import { recordRepeated, recordRequest } from '../record/recorder.ts';
import { PlotKind } from '../record/series.ts';
import { isLikeAckTimeout } from '../record/timers.ts';
import type { Direction } from './direction.ts';
import type { LastHeard } from './last-heard.ts';
import type { UnnumberedMessage } from './messages.ts';
import { unwrapFirst } from './outstanding.ts';
import { RequesterTracker } from './requester-tracker.ts';
import { applyResponse, countResponse, syndromeOf } from './responses.ts';
import type { RightIcrcs } from './right-icrcs.ts';
import { Taken, Verdict } from './verdict.ts';

/** One direction of a connection. Not copied: its number changes. */
export interface PacketFlow {
  /** Its number is 0 until it is known, at the end of the analysis at the latest. */
  readonly connection: { readonly id: number };
}

/** The verdict on a packet the moment it was added. One object, used again for each. */
export interface PacketVerdict {
  /** Number of its connection; 0: none, or one that is not paired yet. */
  connection: number;
  /** The flow it belongs to, where the number is later; undefined: none. */
  flow: PacketFlow | undefined;
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

/** The parts of an analysis that a packet meets. */
export interface Surroundings {
  readonly clock: Clock;
  readonly pauses: PauseCounts;
  readonly pairer: DirectionPairer;
  readonly heard: LastHeard;
  readonly right: RightIcrcs;
  readonly messageEnded: (direction: Direction, message: UnnumberedMessage) => void;
}

/** Takes packets; `verdict` is on the one that was taken last. Nothing is allocated for a packet. */
export class PacketTracker {
  readonly verdict: PacketVerdict = {
    connection: 0,
    flow: undefined,
    retransmission: undefined,
    grade: undefined,
    evidence: 0,
    begins: false,
    repeatedFrame: false,
  };
  readonly #around: Surroundings;
  /** Requesters put their verdicts in here. */
  readonly #request = new Verdict();

  constructor(around: Surroundings) {
    this.#around = around;
  }

  /** The next packet comes: the verdict is empty. */
  reset(): void {
    const { verdict } = this;
    verdict.connection = 0;
    verdict.flow = undefined;
    verdict.retransmission = undefined;
    verdict.grade = undefined;
    verdict.evidence = 0;
    verdict.begins = false;
    verdict.repeatedFrame = false;
  }

  take(direction: Direction, packet: RocePacket): void {
    const { counts, span, path, record } = direction;
    const { frame, time, info } = packet;
    const { pauses } = this.#around;
    counts.packets++;
    path.traffic.add(packet);
    if (pauses.frames > 0) pauses.passed(direction.key.mac, path.facts.toMac, frame, time);
    span.note(packet);
    this.verdict.connection = direction.connection.id;
    this.verdict.flow = direction;
    if (packet.icrc === IcrcVerdict.BAD) {
      if (!this.#takeBad(direction, packet)) return;
    } else if (path.trial !== undefined) {
      path.believe(packet);
      direction.requester?.doubt();
      this.#around.right.note(packet);
    }
    const isMarked = path.take(packet);
    if (packet.flushTwice) record.events.add('flush-twice', frame, time, 1);
    if ((info.isFlush || info.isAtomicWrite) && hasNoAddress(packet))
      record.events.add('no-address', frame, time, 1);
    if (packet.icrc === IcrcVerdict.NONE) counts.icrcUnchecked++;
    if (packet.ecn !== 0) countEcn(direction, packet, isMarked);
    if (direction.ids.noteSeen(packet) || noteMirrored(direction, packet)) {
      recordRepeated(direction, packet);
      this.verdict.repeatedFrame = true;
      return;
    }
    counts.bytes += packet.payloadLength;
    record.throughput.add(time, packet.payloadLength);
    if (info.isResponse) this.#takeResponse(direction, packet);
    else if (info.isRequest) this.#takeRequest(direction, packet);
    else takeCnp(direction, packet);
  }

  /** A packet with a wrong ICRC. @returns whether it counts all the same, as no ICRC of its sender is right */
  #takeBad(direction: Direction, packet: RocePacket): boolean {
    const { counts, path, record } = direction;
    const { frame, time, psn } = packet;
    counts.icrcBad++;
    record.events.add('icrc-bad', frame, time, 1);
    if (path.trial !== undefined) {
      counts.icrcTaken++;
      path.trial.try(packet);
      return true;
    }
    const damaged = packet.info.isResponse
      ? direction.peer?.requester?.damagedAnswers
      : direction.requester?.damaged;
    damaged?.add(psn, frame, time);
    record.ladder.offer(packet, direction.from, true, undefined, false);
    return false;
  }

  #takeRequest(direction: Direction, packet: RocePacket): void {
    direction.counts.requests++;
    direction.transport ??= packet.info.transportName as Transport;
    direction.requester ??= this.#newRequester(direction);
    const { requester } = direction;
    if (direction.transport === 'UD') {
      takeDatagram(direction, requester, packet);
      return;
    }
    const { clock, pairer } = this.#around;
    if (direction.peer === undefined) pairer.sent(direction, packet.psn);
    const request = this.#request;
    request.reset();
    const idle = requester.hasAnswers ? idleOf(direction, packet.time) : 0;
    requester.take(packet, direction.ids);
    if (request.taken === Taken.NEW && isLikeAckTimeout(idle, requester.classifier.timer.ackTimeout))
      direction.record.events.add('idle-like-timeout', packet.frame, packet.time, idle);
    // Times that go back are no evidence.
    if (clock.stepsBack > 0 && request.grade === 'certain') request.grade = 'likely';
    const opposite = direction.peer?.requester;
    if (opposite !== undefined && opposite.pathMtu !== requester.pathMtu) sharePathMtu(requester, opposite);
    recordRequest(direction, packet, request);
    const { verdict } = this;
    verdict.repeatedFrame = request.taken === Taken.REPEATED;
    if (request.taken !== Taken.RETRANSMISSION) return;
    direction.record.sentAgain(packet.time, packet.payloadLength);
    verdict.retransmission = request.cause;
    verdict.grade = request.grade;
    verdict.evidence = request.evidenceFrame;
    verdict.begins = request.begins;
  }

  #newRequester(direction: Direction): RequesterTracker {
    const requester = new RequesterTracker(
      direction.counts,
      direction.record.events,
      direction.reliable,
      this.#request,
      (message) => this.#around.messageEnded(direction, message),
    );
    requester.hasAnswers = direction.peer !== undefined;
    const { cm } = direction.search;
    if (cm !== undefined) {
      requester.pathMtu = cm.pathMtu;
      requester.classifier.timer.ackTimeout = cm.ackTimeout === 0 ? 0 : 4096 * 2 ** cm.ackTimeout;
    }
    const known = direction.peer?.requester?.pathMtu;
    if (known !== undefined && known > 0) requester.pathMtu = known;
    return requester;
  }

  #takeResponse(direction: Direction, packet: RocePacket): void {
    const { frame, time, psn, info } = packet;
    const { heard, pairer } = this.#around;
    const asked = direction.peer?.requester;
    if (asked?.episodes.isWaiting) asked.peerHeard = heard.of(packet.source);
    direction.transport ??= info.transportName as Transport;
    const syndrome = syndromeOf(packet);
    countResponse(direction, packet, syndrome);
    const { operation } = info;
    const response = { psn, time, frame, operation, last: info.last, syndrome };
    if (direction.peer !== undefined) {
      learnPathMtu(direction.peer, packet);
      if (direction.connection.presumed) pairer.confirm(direction, response);
      applyResponse(direction, response);
    } else {
      pairer.response(direction, response);
    }
    const kind = plotKindOf(operation, syndrome);
    direction.record.plot.add(time, direction.answers.next(psn), frame, kind);
    const special = kind === PlotKind.NAK || kind === PlotKind.RNR;
    direction.record.ladder.offer(packet, direction.from, special, undefined, false);
  }
}

function countEcn({ counts, record }: Direction, { frame, time, psn }: RocePacket, isMarked: boolean): void {
  counts.ecnCapable++;
  if (!isMarked) return;
  counts.ecnMarked++;
  record.events.add('ecn-marked', frame, time, 1);
  record.plot.add(time, unwrapFirst(psn), frame, PlotKind.MARKED);
}

function takeCnp(direction: Direction, packet: RocePacket): void {
  const { record, requester, answers } = direction;
  const { frame, time } = packet;
  direction.counts.cnps++;
  record.events.add('cnp', frame, time, 1);
  direction.peer?.path.congestion.notified(time);
  const psn = answers.psn >= 0 ? answers.psn : (requester?.next ?? unwrapFirst(packet.psn));
  record.plot.add(time, psn, frame, PlotKind.CNP);
  record.ladder.offer(packet, direction.from, true, undefined, false);
}

/** Each datagram is a message; its PSN counts all that its sender sends to anyone. */
function takeDatagram({ record, from }: Direction, requester: RequesterTracker, packet: RocePacket): void {
  const { psn, frame, time } = packet;
  record.plot.add(time, unwrapFirst(psn), frame, PlotKind.REQUEST);
  record.ladder.offer(packet, from, false, undefined, false);
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

/** Remembers a response or CNP. @returns whether it is a copy, in a mirror of two ports that shows the requests twice */
function noteMirrored({ peer, ids, counts, answers }: Direction, packet: RocePacket): boolean {
  if (packet.info.isRequest || ids.areDistinct) return false;
  if (peer === undefined) {
    if (counts.responses === 0) answers.mirrored.first(packet);
    return false;
  }
  return peer.counts.repeatedFrames * 2 > peer.counts.packets && answers.mirrored.next(packet);
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
