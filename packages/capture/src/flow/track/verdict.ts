/**
 * The verdict on a packet: what it was, why it was retransmitted, how sure that is, and the evidence. Everything that
 * speaks of a packet (counts, events, plot, ladder, findings, comments, JSON) reads this one object.
 */
import type { Grade, MissingPacket, RetransmitCause, TapSide } from '../facts.ts';
import type { Episode } from './episodes.ts';

/** The fate of a request packet. */
export const Taken = { NEW: 0, RETRANSMISSION: 1, REPEATED: 2 } as const;

/** The verdict on the packet that was added last: one object, used again for each. */
export class Verdict {
  /** One of `Taken`. */
  taken: number = Taken.NEW;
  /** A packet sent after it was seen before it: the network changed their order. */
  late = false;
  /** How long after the first of them, nanoseconds; and by how many PSNs it was overtaken. */
  lateBy = 0;
  overtaken = 0;
  cause: RetransmitCause = 'unknown';
  grade: Grade = 'not-shown';
  /** The requester went back with this packet: a recovery begins. */
  begins = false;
  /** The NAK, the response behind the missing one, the packet that was not answered, the damaged one; 0: none. */
  evidenceFrame = 0;
  /** A packet with a wrong ICRC made it necessary; 0: none. */
  damagedFrame = 0;
  /** Since the evidence, or since the retry timer began to run; nanoseconds. */
  wait = 0;
  missing: MissingPacket = 'unknown';
  side: TapSide = 'unknown';
  /** Unwrapped PSN. */
  psn = 0;
  /** Of a packet with which the requester went back. */
  episode: Episode | undefined;

  reset(): void {
    this.taken = Taken.NEW;
    this.late = false;
    this.lateBy = 0;
    this.overtaken = 0;
    this.cause = 'unknown';
    this.grade = 'not-shown';
    this.begins = false;
    this.evidenceFrame = 0;
    this.damagedFrame = 0;
    this.wait = 0;
    this.missing = 'unknown';
    this.side = 'unknown';
    this.psn = 0;
    this.episode = undefined;
  }
}
