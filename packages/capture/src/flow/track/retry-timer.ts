/**
 * The retry timer of one requester, as far as a capture shows it, and the probes that come before it (RFC 8985 §7). All times are
 * nanoseconds.
 */
import type { RetransmitCause } from '../facts.ts';
import type { SentAgain } from './sent-again.ts';

const MICROSECOND = 1000;
const MILLISECOND = 1e6;
/**
 * No retry timer fires earlier than this: T = 4.096 µs · 2^timeout (IBTA vol 1 §9.7.6.1.3) with a timeout of 8,
 * 1.05 ms; ConnectX starts adaptive retransmission at 2 ms.
 */
export const MIN_TIMER = 0.9 * MILLISECOND;
/** The same of senders without MigReq, rxe: its timers are whole jiffies of 4 ms, and it may react late. */
export const MIN_JIFFIES_TIMER = 3.5 * MILLISECOND;
/**
 * Tail loss probes (RFC 8985 §7) come after two round trips of silence: node-roce's after 50 µs at the least. So a packet that is
 * retransmitted after less silence is not a probe, and after more it may be one.
 */
export const MIN_PROBE = 45 * MICROSECOND;
/** A requester that got a NAK goes back within this. */
const REACTION = 2 * MILLISECOND;
/** ConnectX's adaptive retransmission begins with 2 ms. */
const MIN_ADAPTIVE = 1.9 * MILLISECOND;
/** Queues on the way hold a packet no longer than this. */
const MAX_QUEUING_DELAY = 0.5 * MILLISECOND;
/** How near a timer is to its nominal length, as a share of it. */
const TIMER_TOLERANCE = 0.005;

/** Since when the timer runs, and what probes have brought. Between progress and a go-back-N it starts never. */
export class RetryTimer {
  /** ACK timeout T of the queue pair, from CM messages; 0: not known. */
  ackTimeout = 0;
  /** Since when the retry timer runs, as far as the capture shows: first send, progress, or last go-back-N. */
  start = 0;
  /** Since when it runs, if a go-back-N of unknown cause was not one of the timer. */
  earlierStart = Number.POSITIVE_INFINITY;
  /** When that was. */
  unknownAt = Number.NEGATIVE_INFINITY;
  /** The oldest PSN that is not answered: the timer is for it. */
  unacked = -1;
  /** When something was last acknowledged. */
  progressTime = Number.NEGATIVE_INFINITY;
  /** Since when something is out and nothing of it was acknowledged, whatever came again since. */
  silentSince = Number.NEGATIVE_INFINITY;
  lastProbe = Number.NEGATIVE_INFINITY;
  probeInterval = 0;
  /** It has sent probes sooner than ConnectX's adaptive retransmission begins: those come after two round trips. */
  #probesSoon = false;
  /** When a probe was answered. */
  probeOver = Number.NEGATIVE_INFINITY;
  /** Past the PSNs that the last probe asks for, and past those in flight then; −1: none is out. */
  probeEnd = -1;
  flightEnd = -1;
  /** When it was answered, and nothing was sent since; −1: it was not. */
  probeAnswered = -1;

  /** A packet is sent for the first time, and nothing else is out. */
  begin(time: number): void {
    this.start = time;
    this.silentSince = time;
  }

  /** Everything before `unacked` is answered. */
  progress(unacked: number, time: number): void {
    this.begin(time);
    this.progressTime = time;
    this.earlierStart = time;
    this.unacked = unacked;
    if (this.lastProbe > Number.NEGATIVE_INFINITY) this.probeOver = time;
    this.lastProbe = Number.NEGATIVE_INFINITY;
    if (this.probeEnd < 0 || unacked < this.probeEnd) return;
    // The peer has answered with all that it has: what was sent behind the probed packet is lost.
    if (unacked < this.flightEnd) this.probeAnswered = time;
    this.probeEnd = -1;
  }

  /** A probe is out, or was answered just now. */
  isProbed(time: number): boolean {
    return this.lastProbe > Number.NEGATIVE_INFINITY || this.probeOver === time;
  }

  /** Since when nothing of the timer was seen, if the last go-back-N of unknown cause was not one of it. */
  get earliestStart(): number {
    return this.unknownAt === this.start ? this.earlierStart : this.start;
  }

  /**
   * A packet that comes again, which nothing asked for, may be a probe: the oldest that is not answered, or the newest.
   * @param since silence
   */
  isProbeDue(psn: number, next: number, end: number, time: number, since = this.start): boolean {
    return (psn === this.unacked || next === end) && time - since >= MIN_PROBE;
  }

  /** The sender goes back for the answer to its probe: at once, or the timer does it. */
  goesBack(time: number): boolean {
    return this.probeAnswered >= 0 && time - this.probeAnswered < MIN_TIMER;
  }

  /** Whether the retry timer can't have been the cause. */
  isNotYet(time: number, reaction: number, migReq: boolean): boolean {
    const running = time - Math.min(this.start, this.earlierStart);
    if (this.ackTimeout > 0 && running >= 0.9 * this.ackTimeout) return false;
    // rxe's timer may have begun with an earlier packet, and it ignores NAKs while it recovers.
    if (!migReq) return running < MIN_JIFFIES_TIMER;
    if (reaction > REACTION) return false;
    // On the way the timer seems to run longer, by what packets wait there.
    const slack = Math.min(MAX_QUEUING_DELAY, 4 * reaction);
    return running < MIN_TIMER || (reaction < MIN_TIMER && !this.isDue(time, slack));
  }

  /** The retry timer, or ConnectX's or node-roce's own, may fire now. */
  isDue(time: number, slack = 0): boolean {
    return isNominal(time - this.start, slack) || isNominal(time - this.earlierStart, slack);
  }

  /** A probe, or what may be one, was sent. */
  probed(time: number): RetransmitCause {
    const since = Math.max(this.start, this.lastProbe);
    this.probeInterval = time - since;
    if (this.probeInterval < MIN_ADAPTIVE) this.#probesSoon = true;
    this.lastProbe = time;
    return 'probe';
  }

  /**
   * Nothing was heard, and the sender has MigReq: the timer of the standard, or a retransmission before it.
   * @param isAway the tap is away from the sender
   * @param askedUntil what NAKs or missing responses asked for has come again by then
   * @param pauses the sender's host is one that pauses
   */
  causeOf(
    { psn, next, time, unacked, end }: SentAgain,
    isAway: boolean,
    askedUntil: number,
    pauses: boolean,
  ): RetransmitCause {
    const running = time - this.start;
    // Too early for any other timer.
    if (running < MIN_TIMER && this.isProbeDue(psn, next, end, time)) {
      // Unless what came again since, of unknown cause, was a probe itself.
      const earliest = Math.min(this.earlierStart, this.progressTime);
      if (this.unknownAt === this.start && time - earliest >= MIN_TIMER) return 'unknown';
      // There the first packets of a go-back-N may have been lost before the tap.
      // Or the first transmission, with which a timer began.
      const mayBeTimer = time - this.progressTime >= MIN_TIMER;
      const mayBeAsked = isAway && (psn !== unacked || time < askedUntil || mayBeTimer);
      return mayBeAsked ? 'unknown' : this.probed(time);
    }
    // Answered as the capture has it, but the answer did not reach the sender: when its timer began is not known.
    if (psn !== unacked) return 'unknown';
    const { ackTimeout } = this;
    if (ackTimeout > 0 && running < 0.9 * ackTimeout && running >= MIN_TIMER) return this.probed(time);
    const earlier = time - this.earlierStart;
    const onGrid = isOnTimerGrid(running);
    if (onGrid && isAdaptive(running)) return 'unknown';
    if (isAway && isNearBoth(running)) return 'unknown';
    // If the timer caused the retransmissions since, it has begun anew.
    if (this.unknownAt === this.start && isNominal(earlier)) return 'unknown';
    const sinceProbe = time - this.lastProbe;
    const isDoubled =
      sinceProbe < Number.POSITIVE_INFINITY &&
      Math.abs(sinceProbe / (2 * this.probeInterval) - 1) < TIMER_TOLERANCE;
    // The next probe comes after twice the time, and so may the timer's end.
    if (onGrid && isDoubled) return 'unknown';
    // Of a host that pauses, a silence may have that length by chance.
    if (onGrid && running >= 0.9 * ackTimeout) return pauses ? 'unknown' : 'timeout';
    const isNextAdaptive = isDoubled && this.probeInterval >= MIN_ADAPTIVE;
    if ((isAdaptive(running) && !this.#probesSoon) || isNextAdaptive) return this.probed(time);
    return 'unknown';
  }

  /** The requester went back at this time, and not for a probe: the timer begins anew, for what it was not of. */
  wentBack(cause: RetransmitCause, time: number): void {
    this.earlierStart = cause === 'unknown' ? this.start : time;
    if (cause === 'unknown') this.unknownAt = time;
    this.start = time;
  }
}

/** 4.096 µs · 2^k, or longer than that by `slack`. */
function isOnTimerGrid(nanoseconds: number, slack = 0): boolean {
  return nanoseconds >= MIN_TIMER && isPowerOfTwoTimes(nanoseconds, 4096, slack);
}

/** Whole milliseconds that are powers of two, from 2 on: ConnectX's own intervals. */
function isAdaptive(nanoseconds: number, slack = 0): boolean {
  return nanoseconds > MIN_ADAPTIVE && isPowerOfTwoTimes(nanoseconds, MILLISECOND, slack);
}

/** Either, if packets and answers waited in queues. */
function isNearBoth(nanoseconds: number): boolean {
  const isNear = (is: typeof isAdaptive) => is(nanoseconds + MAX_QUEUING_DELAY / 2, MAX_QUEUING_DELAY);
  return isNear(isOnTimerGrid) && isNear(isAdaptive);
}

const isNominal = (nanoseconds: number, slack = 0): boolean =>
  isOnTimerGrid(nanoseconds, slack) || isAdaptive(nanoseconds, slack);

function isPowerOfTwoTimes(value: number, unit: number, slack: number): boolean {
  const nominal = unit * 2 ** Math.floor(Math.log2(value / unit / (1 - TIMER_TOLERANCE)));
  return value <= nominal * (1 + TIMER_TOLERANCE) + slack;
}
