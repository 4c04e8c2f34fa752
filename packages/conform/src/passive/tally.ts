/** Occasions of a host to break a passive rule, and how often it was broken. */

/**
 * Deviations that a loss between the host and the capture could explain count only if there are so many of them, and hardly any
 * occasion without one: losses spare most packets.
 */
const LEAST_DOUBTFUL = 3;
const DOUBTFUL_SHARE = 0.9;

/** Frames kept of a kind of deviation. */
const MAX_FRAMES = 20;

export interface Seen {
  /** All of them; `frames` are the first ones. */
  count: number;
  frames: number[];
}

/** One rule and one host. */
export class Tally {
  /** How often the host could have broken the rule. */
  occasions = 0;
  /** By what was seen, a text without measured values. */
  readonly certain = new Map<string, Seen>();
  /** A loss that the capture does not show explains these as well. */
  readonly doubtful = new Map<string, Seen>();
  readonly notes: string[] = [];

  wrong(text: string, frame: number, isCertain: boolean): void {
    const found = isCertain ? this.certain : this.doubtful;
    const seen = found.get(text) ?? { count: 0, frames: [] };
    found.set(text, seen);
    seen.count++;
    if (seen.frames.length < MAX_FRAMES) seen.frames.push(frame);
  }

  /** Deviations, certain ones first; the others if there is no other explanation left. */
  get deviations(): Map<string, Seen> {
    const often = [...this.doubtful].filter(([, { count }]) => this.#isRule(count));
    return new Map([...often, ...this.certain]);
  }

  #isRule(count: number): boolean {
    return count >= LEAST_DOUBTFUL && count >= DOUBTFUL_SHARE * this.occasions;
  }
}

/** Tallies by host and rule. */
export class Board {
  readonly #tallies = new Map<string, Map<string, Tally>>();

  of(host: string, rule: string): Tally {
    const rules = this.#tallies.get(host) ?? new Map<string, Tally>();
    this.#tallies.set(host, rules);
    const tally = rules.get(rule) ?? new Tally();
    rules.set(rule, tally);
    return tally;
  }

  get hosts(): string[] {
    return [...this.#tallies.keys()];
  }
}
