/** Where a loss lay, relative to the tap, as far as the packets at the tap show it. */
import type { MissingPacket, RetransmitCause, TapSide } from '../facts.ts';
import type { SentAgain } from './sent-again.ts';
import type { Verdict } from './verdict.ts';

/** A PSN this far from the one expected: the capture stopped for a while, or the queue pair began anew. */
const MAX_GAP = 4096;
/** Sequence NAKs whose place is remembered; and gaps for which a NAK may come. */
const NAKS = 8;
const GAPS = 4;

interface Place {
  frame: number;
  missing: MissingPacket;
  side: TapSide;
}

/**
 * The requests that passed the tap on their way to a responder, and the PSN that it expects if nothing was lost behind the tap. PSNs are unwrapped.
 */
export class PassedRequests {
  /** −1: nothing has passed. */
  #expected = -1;
  /** The oldest that has: whether those before it did, before the capture began, is not known. */
  #first = -1;
  /** PSNs that were expected when later packets passed, the newest first: the responder sends NAKs for them. */
  #gaps: number[] | undefined;
  /** The last PSN that a NAK named, until it passes: for what passes before it there is no other NAK. */
  #refused = -1;
  /** The PSN of the last RNR NAK, until it passes again: a sequence NAK may come with that. */
  #notReady = -1;
  /** Past the newest packet that passed in order and asks for an answer. */
  #askedTo = -1;
  /** The last packet in order was a READ with an unknown number of responses. */
  #isOpen = false;
  /** Both are made with the first: most connections have none. */
  #naks: Place[] | undefined;

  /**
   * A request passed.
   * @param asks the responder has to answer it
   * @param isOpen it takes more PSNs than up to `next`, nobody knows how many
   */
  passed(psn: number, next: number, asks: boolean, isOpen: boolean): void {
    if (this.#expected < 0 || Math.abs(psn - this.#expected) > MAX_GAP) {
      this.#expected = this.#first = psn;
      this.#refused = this.#notReady = -1;
      this.#gaps = undefined;
      this.#askedTo = psn;
    }
    if (psn > this.#expected && !this.#isOpen) {
      if (this.#expected !== this.#refused && this.#expected !== this.#gaps?.[0]) this.#gap(this.#expected);
      return;
    }
    // It was overtaken by the first packets of the capture.
    if (psn < this.#first) {
      this.#first = psn;
      this.#gap(psn);
    }
    // In order, or a duplicate, which is answered as well.
    if (asks && next > this.#askedTo) this.#askedTo = next;
    if (psn < this.#expected) return;
    this.#expected = next;
    this.#isOpen = isOpen;
    this.#refused = this.#notReady = -1;
  }

  #gap(psn: number): void {
    this.#gaps ??= [];
    this.#gaps.unshift(psn);
    if (this.#gaps.length > GAPS) this.#gaps.pop();
  }

  /** The responder has everything before this PSN, whatever passed the tap. */
  acknowledged(end: number): void {
    if (this.#expected < 0 || end <= this.#expected) return;
    this.#expected = end;
    this.#isOpen = false;
  }

  /** A sequence NAK: if everything up to its PSN had passed in order, it was lost behind the tap. */
  sequenceNak(psn: number, frame: number): void {
    const place: Place = { frame, missing: 'request', side: 'unknown' };
    if (psn === this.#notReady) place.missing = 'none';
    else if (this.#gaps?.includes(psn)) place.side = 'requester';
    else if (psn >= this.#first && this.#expected > psn) place.side = 'responder';
    this.#naks ??= [];
    this.#naks.unshift(place);
    if (this.#naks.length > NAKS) this.#naks.pop();
    this.#goBack(psn);
  }

  rnrNak(psn: number): void {
    this.#goBack(psn);
    this.#notReady = psn;
  }

  /** The responder drops all packets until this PSN comes. */
  #goBack(psn: number): void {
    if (this.#expected < 0) return;
    this.#expected = psn;
    this.#refused = psn;
    this.#gaps = undefined;
    this.#isOpen = false;
    if (this.#askedTo > psn) this.#askedTo = psn;
  }

  /** Names in the verdict the packet that was missing when a requester went back, and the side of the tap where it was lost or late. */
  place(verdict: Verdict, sent: SentAgain, missingPsn: number): void {
    const place = this.#placeOf(verdict.cause, verdict.evidenceFrame, sent, missingPsn);
    verdict.missing = place.missing;
    verdict.side = place.side;
  }

  #placeOf(
    cause: RetransmitCause,
    evidence: number,
    sent: SentAgain,
    missingPsn: number,
  ): Omit<Place, 'frame'> {
    switch (cause) {
      case 'sequence-nak':
        return this.#naks?.find(({ frame }) => frame === evidence) ?? { missing: 'request', side: 'unknown' };
      case 'implied-nak': {
        const missing = 'response';
        // A response passed before the one that was missing.
        if (sent.psn >= sent.unacked || (evidence > 0 && sent.psn === missingPsn))
          return { missing, side: 'responder' };
        // All of them had passed; or one came later than those behind it.
        return { missing, side: evidence === 0 ? 'requester' : 'unknown' };
      }
      case 'rnr':
        return { missing: 'none', side: 'unknown' };
      case 'timeout':
      case 'probe':
        return this.#afterSilence(sent);
      default:
        return { missing: 'unknown', side: 'unknown' };
    }
  }

  /** Nothing was heard: the request, or its answer. */
  #afterSilence({ psn, unacked, unseen, heard }: SentAgain): Omit<Place, 'frame'> {
    if (!heard) return { missing: 'either', side: 'unknown' };
    // The answer passed the tap, but the requester has not got it.
    if (psn < unacked) return { missing: 'response', side: 'requester' };
    if (unseen) return { missing: 'request', side: 'requester' };
    // A packet that asks for an answer passed, and no answer came; else such a packet may not have passed.
    return { missing: 'either', side: this.#askedTo > psn ? 'responder' : 'unknown' };
  }
}
