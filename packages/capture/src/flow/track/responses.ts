/** ACKs, NAKs, READ responses and atomic results, brought to the requester that they are for. */
import {
  AethKind,
  aethKind,
  aethSyndrome,
  aethValue,
  creditsOf,
  NakCode,
  OperationBits,
  rnrTimerMicroseconds,
} from '@node-roce/wire';
import type { RocePacket } from '../../read/packet.ts';
import type { NakName } from '../facts.ts';
import type { PendingResponse } from '../pair/partner-search.ts';
import type { Direction } from './direction.ts';
import { unwrap } from './outstanding.ts';
import type { RequesterTracker } from './requester-tracker.ts';

const NAK_NAMES: Readonly<Record<number, NakName>> = {
  [NakCode.PSN_SEQUENCE_ERROR]: 'psn-sequence-error',
  [NakCode.INVALID_REQUEST]: 'invalid-request',
  [NakCode.REMOTE_ACCESS_ERROR]: 'remote-access-error',
  [NakCode.REMOTE_OPERATIONAL_ERROR]: 'remote-operational-error',
  [NakCode.INVALID_RD_REQUEST]: 'invalid-rd-request',
};

const nakName = (syndrome: number): NakName => NAK_NAMES[syndrome & 0x7f] ?? 'reserved-nak';

/** The syndrome of a response; −1 where there is none. */
export function syndromeOf({ info, bytes, bth, end }: RocePacket): number {
  const at = info.offsets.aeth;
  return at >= 0 && bth + at < end ? aethSyndrome(bytes, bth + at) : -1;
}

/** Adds a response to the counts of its own direction. */
export function countResponse(direction: Direction, packet: RocePacket, syndrome: number): void {
  const {
    counts,
    record: { events },
  } = direction;
  const { frame, time } = packet;
  counts.responses++;
  if (packet.info.operation !== OperationBits.ACKNOWLEDGE || syndrome < 0) return;
  const kind = aethKind(syndrome);
  if (kind === AethKind.ACK) {
    counts.acks++;
  } else if (kind === AethKind.RNR_NAK) {
    counts.rnrNaks++;
    events.add('rnr-nak', frame, time, rnrTimerMicroseconds(aethValue(syndrome)) * 1000);
  } else {
    const name = nakName(syndrome);
    counts.naks[name] = (counts.naks[name] ?? 0) + 1;
    events.add(`nak-${name}`, frame, time, 1);
  }
}

/** Passes a response to the requester on the other side; `direction` is the one that the response came in. */
export function applyResponse(direction: Direction, response: PendingResponse): void {
  const requester = direction.peer?.requester;
  if (requester === undefined || !requester.started) return;
  take(direction, requester, response);
  requester.heard(response.time, response.frame);
}

function take(direction: Direction, requester: RequesterTracker, response: PendingResponse): void {
  const { time, frame, operation, syndrome } = response;
  const psn = unwrap(response.psn, requester.unacked);
  if (operation !== OperationBits.ACKNOWLEDGE) {
    const isRead = operation !== OperationBits.ATOMIC_ACKNOWLEDGE;
    if (!requester.answer(psn, isRead, response.last, time, frame)) direction.counts.repeatedResponses++;
    else requester.classifier.recovered();
    return;
  }
  if (syndrome < 0) {
    // The capture cut the AETH: an ACK or a NAK, so nothing can be concluded from answers.
    requester.hasAnswers = false;
    requester.messages.knowsAnswers = false;
    return;
  }
  const kind = aethKind(syndrome);
  if (kind === AethKind.ACK) {
    const isGhost = requester.noteAck(psn);
    if (psn >= requester.unacked) {
      requester.acknowledge(psn, time, frame);
      requester.classifier.recovered();
    }
    const isOvertaken = requester.noteNamed(psn);
    if (!isGhost) return;
    direction.counts.ghostAcks++;
    const isCredit = Number.isFinite(creditsOf(aethValue(syndrome)));
    if (isCredit) direction.grantsCredits = true;
    if (isOvertaken) return;
    direction.acknowledgedTwice++;
    requester.episodes.repeatedAnswer(psn, time, frame, true, isCredit);
    return;
  }
  // A NAK acknowledges everything before the PSN that it names (IBTA vol 1 §9.7.5.2.8).
  if (psn > requester.unacked) requester.acknowledge(psn - 1, time, frame);
  const { classifier } = requester;
  if (kind === AethKind.RNR_NAK) {
    const wait = rnrTimerMicroseconds(aethValue(syndrome)) * 1000;
    classifier.rnrNak(psn, time, wait, frame, requester.oldest?.sends ?? 1);
    requester.passed.rnrNak(psn);
  }
  if (kind !== AethKind.NAK) return;
  const name = nakName(syndrome);
  // An answer that was sent later has overtaken it.
  if (psn < requester.unacked && requester.hasProgress) return;
  if (name === 'psn-sequence-error') {
    classifier.sequenceNak(psn, time, frame);
    requester.passed.sequenceNak(psn, frame);
  } else requester.fail(name);
}
