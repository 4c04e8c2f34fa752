/** What findings rest on: for each kind of event how often, when, and the first frames. */

/** Frames kept for a kind. */
const MOST_FRAMES = 100;

export interface EventKind {
  count: number;
  /** Sum and largest of what `add` was told. */
  sum: number;
  most: number;
  start: number;
  end: number;
  frames: number[];
}

/** Bounded whatever is added. */
export class EventLog {
  readonly #kinds = new Map<string, EventKind>();

  /** @param frame 0: no packet stands behind it */
  add(kind: string, frame: number, time: number, amount: number): void {
    let events = this.#kinds.get(kind);
    if (events === undefined) {
      events = { count: 0, sum: 0, most: 0, start: time, end: time, frames: [] };
      this.#kinds.set(kind, events);
    }
    events.count++;
    events.sum += amount;
    if (amount > events.most) events.most = amount;
    if (time < events.start) events.start = time;
    if (time > events.end) events.end = time;
    const { frames } = events;
    if (frame > 0 && frames.length < MOST_FRAMES && frames.at(-1) !== frame) frames.push(frame);
  }

  get(kind: string): EventKind | undefined {
    return this.#kinds.get(kind);
  }

  *[Symbol.iterator](): IterableIterator<[string, EventKind]> {
    yield* this.#kinds;
  }
}
