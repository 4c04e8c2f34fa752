/** Events for which `roce capture --trigger` keeps files of its ring. */
import type { PacketReader } from '@node-roce/capture';
import type { FlowCounts } from './flow-counts.ts';

type Counts = Pick<FlowCounts, 'sentAgain' | 'naks' | 'rnrNaks' | 'ecnMarked' | 'cnps' | 'icrcBad'>;
type Frames = Pick<PacketReader, 'pauseFrames' | 'icmpErrors'>;

const COUNTERS = {
  /** A request whose PSN was seen before. */
  retransmission: ({ sentAgain }) => sentAgain,
  nak: ({ naks }) => naks,
  rnr: ({ rnrNaks }) => rnrNaks,
  icrc: ({ icrcBad }) => icrcBad,
  ce: ({ ecnMarked }) => ecnMarked,
  cnp: ({ cnps }) => cnps,
  pause: (_, { pauseFrames }) => pauseFrames,
  icmp: (_, { icmpErrors }) => icmpErrors,
} satisfies Record<string, (counts: Counts, frames: Frames) => number>;

export type TriggerEvent = keyof typeof COUNTERS;

export const TRIGGER_EVENTS = Object.keys(COUNTERS) as readonly TriggerEvent[];

/** Finds out whether one of the events came since it was asked last. */
export class Trigger {
  readonly #events: readonly TriggerEvent[];
  readonly #counts: Counts;
  readonly #frames: Frames;
  #last = 0;

  constructor(events: readonly TriggerEvent[], counts: Counts, frames: Frames) {
    this.#events = events;
    this.#counts = counts;
    this.#frames = frames;
  }

  happened(): boolean {
    const sum = this.#events.reduce((all, event) => all + COUNTERS[event](this.#counts, this.#frames), 0);
    const isNew = sum > this.#last;
    this.#last = sum;
    return isNew;
  }
}
