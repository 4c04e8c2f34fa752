/** The failure of the requests that are outstanding where the capture ends (IBTA vol 1 §10.3.1.7). */
import type { CmConnection } from '../pair/cm.ts';
import type { RequesterTracker } from './requester-tracker.ts';

/** The retry counter has three bits (IBTA vol 1 §9.9.2.1.1). */
const MAX_RETRIES = 7;
/** After so many retries a requester has failed, as a rule, also where the capture ends before another one is due. */
const USUAL_RETRIES = 3;
/** A requester waits for an RNR timer, coarse timers counted in, no longer than twice its length and this. */
const RNR_SLACK = 20e6;

/** The parts of a `Direction` that its end follows from. */
interface Ended {
  requester: RequesterTracker | undefined;
  reliable: boolean;
  peer: { span: { end: number } } | undefined;
  search: { cm: CmConnection | undefined };
}

/** A requester that has stopped. */
export interface LastFailure {
  failure: 'rnr-retries-exceeded' | 'retries-exceeded';
  /** Transmissions of the oldest packet that is not answered; of `retries-exceeded` since the last RNR NAK for it. */
  sends: number;
  /** RNR NAKs of its PSN. */
  rnrNaks: number;
  /** All retries are used up, or the capture goes on past the time at which the next one was due. */
  isShown: boolean;
}

/**
 * Returns the failure of the requests that are outstanding at the capture's end; undefined if they may have gone on.
 * @param captureEnd nanoseconds since the capture's begin
 */
export function lastFailure(
  { requester, reliable, peer, search: { cm } }: Ended,
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
    const isShown = captureEnd > refused.time + 2 * refused.wait + RNR_SLACK;
    if (!isShown && sends <= USUAL_RETRIES) return undefined;
    return { failure: 'rnr-retries-exceeded', sends, rnrNaks: refused.count, isShown };
  }
  if (unanswered <= 2) return undefined;
  // Without the answers the oldest one is the first of the capture: a queue pair that sends new requests after it is not in error.
  if (peer === undefined ? requester.lastNew > time : peer.span.end >= time) return undefined;
  // An interval is at most four times the timer (IBTA vol 1 §9.7.6.1.3), and adaptive ones are doubled.
  const begin = refused?.time ?? first;
  const isShown = unanswered > (cm?.retries ?? MAX_RETRIES) || captureEnd - time > 2 * (time - begin);
  if (!isShown && unanswered <= (cm?.retries ?? USUAL_RETRIES)) return undefined;
  return { failure: 'retries-exceeded', sends: unanswered, rnrNaks: refused?.count ?? 0, isShown };
}
