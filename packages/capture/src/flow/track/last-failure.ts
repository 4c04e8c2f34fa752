/** The failure of the requests that are outstanding where the capture ends (IBTA vol 1 §10.3.1.7). */
import type { CmConnection, CmEnd } from '../pair/cm.ts';
import type { RequesterTracker } from './requester-tracker.ts';

/** The retry counter has three bits (IBTA vol 1 §9.9.2.1.1). */
const MAX_RETRIES = 7;
/** An RNR retry counter of 7 counts nothing: the requester retries without limit (IBTA vol 1 §9.7.5.2.8). */
const UNLIMITED_RNR = 7;
/** After so many retries a requester has failed, as a rule, also where the capture ends before another one is due. */
const USUAL_RETRIES = 3;
/** A requester waits for an RNR timer, coarse timers counted in, no longer than twice its length and this. */
const RNR_SLACK = 20e6;
/** And a retry timer that no connection manager named is rarely longer than a quarter of this (ACK timeout 14 is 67 ms). */
const TIMER_SLACK = 270e6;

/** The parts of a `Direction` that its end follows from. */
interface Ended {
  requester: RequesterTracker | undefined;
  reliable: boolean;
  peer: { span: { end: number } } | undefined;
  search: { cm: CmConnection | undefined; cmEnd: CmEnd | undefined };
}

/** A requester that has stopped. */
export interface LastFailure {
  failure: 'rnr-retries-exceeded' | 'retries-exceeded';
  /** Transmissions of the oldest packet that is not answered; of `retries-exceeded` since the last RNR NAK for it. */
  sends: number;
  /** RNR NAKs of its PSN. */
  rnrNaks: number;
  /** The retries that were agreed are used up, or the capture goes on past the time at which the next one was due. */
  isShown: boolean;
  /** RNR NAKs prove it; of silence the capture shows no cause: the peer, the path, or a requester that stood still. */
  isCertain: boolean;
}

/**
 * Returns the failure of the requests that are outstanding at the capture's end; undefined if they may have gone on.
 * @param captureEnd nanoseconds since the capture's begin
 */
export function lastFailure(
  { requester, reliable, peer, search: { cm, cmEnd } }: Ended,
  captureEnd: number,
): LastFailure | undefined {
  const oldest = requester?.oldest;
  if (requester === undefined || oldest === undefined || !reliable) return undefined;
  const { sends, first, time } = oldest;
  const refused =
    requester.classifier.evidence.refusals.psn === oldest.psn
      ? requester.classifier.evidence.refusals
      : undefined;
  /** Copies that nothing answered. */
  const unanswered = sends - (refused?.sends ?? 0);
  if (refused !== undefined && unanswered === 0 && sends > 1) {
    const { count, time: since, wait } = refused;
    const agreed = cmEnd?.rnrRetries;
    const isUsedUp = agreed !== undefined && agreed < UNLIMITED_RNR && count > agreed;
    const isShown = isUsedUp || captureEnd > since + 2 * wait + RNR_SLACK;
    // No counter is that long: it retries without limit, and goes on.
    if (!isUsedUp && (count > UNLIMITED_RNR || agreed === UNLIMITED_RNR)) return undefined;
    if (!isShown && (cm !== undefined || sends <= USUAL_RETRIES)) return undefined;
    return { failure: 'rnr-retries-exceeded', sends, rnrNaks: count, isShown, isCertain: isUsedUp };
  }
  if (unanswered <= 2) return undefined;
  // Without the answers the oldest one is the first of the capture: a queue pair that sends new requests after it is not in error.
  if (peer === undefined ? requester.lastNew > time : peer.span.end >= time) return undefined;
  // An interval is at most four times the timer (IBTA vol 1 §9.7.6.1.3), and adaptive ones are doubled. Copies that NAKs asked for
  // come sooner. Just as many copies as the counter allows are the last ones; rxe, which takes 7 as no limit, sends more.
  const begin = refused?.time ?? first;
  const longest = Math.max(2 * (time - begin), 4 * requester.classifier.timer.ackTimeout, TIMER_SLACK);
  const isOver = captureEnd - time > longest;
  const retries = cm?.retries ?? MAX_RETRIES;
  // The last copy is waited for, too: as long as for those before it, on the average.
  const isDue = unanswered > 1 && captureEnd - time >= (time - begin) / (unanswered - 1);
  const isShown = isOver || (isDue && unanswered === retries + 1);
  if (!isShown && unanswered <= (cm?.retries ?? USUAL_RETRIES)) return undefined;
  return {
    failure: 'retries-exceeded',
    sends: unanswered,
    rnrNaks: refused?.count ?? 0,
    isShown,
    isCertain: false,
  };
}
