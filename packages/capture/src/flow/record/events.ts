/** The events that findings rest on: of each name the count, the times and the first frames. */
import type { NakName, RetransmitCause } from '../facts.ts';

/** Frames kept of each name. */
const MAX_FRAMES = 100;

/** The events that a log counts. */
export type EventName =
  | 'retransmission'
  | `go-back-${RetransmitCause}`
  | 'damage-recovery'
  | 'idle-like-timeout'
  | 'late'
  | 'lost'
  | 'missed'
  | 'rnr-nak'
  | `nak-${NakName}`
  | 'icrc-bad'
  | 'flush-twice'
  | 'no-address'
  | 'repeated-frame'
  | 'reused'
  | 'reuse-presumed'
  | 'ecn-marked'
  | 'cnp';

export interface EventSummary {
  count: number;
  /** Sum and largest of the amounts. */
  sum: number;
  most: number;
  start: number;
  end: number;
  frames: number[];
}

/** Counts events by name; its size is bounded whatever is added. */
export class EventLog {
  /** Made with the first event: most directions have none. */
  #summaries: Map<EventName, EventSummary> | undefined;

  /** @param frame 0: no packet stands behind it */
  add(name: EventName, frame: number, time: number, amount: number): void {
    this.#summaries ??= new Map();
    let events = this.#summaries.get(name);
    if (events === undefined) {
      events = { count: 0, sum: 0, most: 0, start: time, end: time, frames: [] };
      this.#summaries.set(name, events);
    }
    events.count++;
    events.sum += amount;
    if (amount > events.most) events.most = amount;
    if (time < events.start) events.start = time;
    if (time > events.end) events.end = time;
    const { frames } = events;
    if (frame > 0 && frames.length < MAX_FRAMES && frames.at(-1) !== frame) frames.push(frame);
  }

  get(name: EventName): EventSummary | undefined {
    return this.#summaries?.get(name);
  }
}
