/** Measures how much a path delivers: the packets acknowledged in a round trip. A loss alone does not show that. */
import { psnDiff } from '@node-roce/wire';
import type { Clock, TimePlace } from '../times.ts';

/** The share of the greatest rate that is kept after each round of packets in flight. */
const KEPT = 7 / 8;

const STARTED = 0;
/** Packets a µs. */
const RATE = 1;
export const DELIVERY_VALUES = 2;

/** Times of the connection, µs. */
export interface PathTimes {
  readonly clock: Clock;
  /** The least round trip; 0 before the first sample. */
  readonly least: number;
}

/**
 * A round is the time in which everything in flight at its start is acknowledged. The greatest rate of the last rounds counts: one
 * with a loss, or in which the program had little to send, is slower than the path.
 */
export class DeliveryRate {
  readonly #path: PathTimes;
  readonly #values: Float64Array;
  readonly #first: number;
  /** One past the last PSN of the round; −1: none is counted. */
  #end = -1;
  #packets = 0;

  /** @param place room for `DELIVERY_VALUES` */
  constructor(path: PathTimes, place: TimePlace = { array: new Float64Array(DELIVERY_VALUES), at: 0 }) {
    this.#path = path;
    this.#values = place.array;
    this.#first = place.at;
  }

  reset(): void {
    this.#values.fill(0, this.#first, this.#first + DELIVERY_VALUES);
    this.#end = -1;
    this.#packets = 0;
  }

  /** `packets` more are acknowledged, all before `unackedPsn`; everything before `sendPsn` was sent. */
  acknowledged(packets: number, unackedPsn: number, sendPsn: number): void {
    this.#packets += packets;
    if (this.#end >= 0 && psnDiff(unackedPsn, this.#end) < 0) return;
    const values = this.#values;
    const first = this.#first;
    const now = this.#path.clock[0];
    const time = now - values[first + STARTED];
    if (this.#end >= 0 && time > 0) {
      values[first + RATE] = Math.max(this.#packets / time, values[first + RATE] * KEPT);
    }
    values[first + STARTED] = now;
    this.#packets = 0;
    this.#end = sendPsn;
  }

  /** Packets that the path delivers in its least round trip: fewer in flight leave it idle. */
  get leastFlight(): number {
    return Math.ceil(this.#values[this.#first + RATE] * this.#path.least);
  }
}
