/**
 * The result of comparing two captures of one path, A and B. Plain values: what `roce compare --json` prints. Times are
 * nanoseconds; frames are numbered from 1, as Wireshark does.
 */
import type { CaptureSummary, Distribution } from '../flow/analysis.ts';

/** The clock of capture B against that of capture A. */
export interface ClockOffset {
  /** Clock B minus clock A at the first packet of A that B has too. */
  offset: number;
  /** Nanoseconds that clock B gains in a second; 0 where the captures are too short to measure it. */
  drift: number;
  /**
   * The offset is exact if the least delay is the same in both directions, and wrong by half of their difference if not: by
   * `uncertainty` at most, the mean of both. Undefined where packets of one direction only are in both captures: then
   * their least delay counts as 0.
   */
  uncertainty: number | undefined;
  /** Packets that the estimate rests on. */
  samples: number;
}

/** The fate of a packet between the taps. */
export type TransitFate =
  /** At the tap near its sender, not at the other. */
  | 'lost'
  /** At both; the ICRC is right near the sender and wrong at the other tap. */
  | 'damaged'
  /** At the tap near its sender once, at the other one more time. */
  | 'duplicated'
  /** At the far tap only: the capture near its sender missed it, or it came another way. */
  | 'unseen';

/** A packet that did not simply pass. */
export interface TransitEvent {
  fate: TransitFate;
  /** Frame in each capture; undefined where it is not. */
  frameA: number | undefined;
  frameB: number | undefined;
  /** By the clock of capture A, since its first frame. */
  time: number;
  source: string;
  destination: string;
  opcode: string;
  destQp: number;
  psn: number;
}

/** The packets from one side to the other. */
export interface Transit {
  /** The side of the senders: `a` is where capture A was taken. */
  from: 'a' | 'b';
  /** Packets at the tap near the sender, as far as both captures ran, and of them those at both. */
  sent: number;
  arrived: number;
  lost: number;
  damaged: number;
  duplicated: number;
  unseen: number;
  /** Packets that came after one that was sent later. */
  reordered: number;
  /** Time from tap to tap, by clocks that are corrected. */
  delay: Distribution | undefined;
}

export interface Comparison {
  summaryA: CaptureSummary;
  summaryB: CaptureSummary;
  clock: ClockOffset;
  aToB: Transit;
  bToA: Transit;
  /** Packets that only one capture has, of a time that the other does not cover: not judged. */
  outside: { a: number; b: number };
  /** Packets of senders of which no packet is in both captures; of an unknown side. */
  unplaced: number;
  /** The first some thousand, in the order of their times. */
  events: TransitEvent[];
  eventCount: number;
}
