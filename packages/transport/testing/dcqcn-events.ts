/** Draws the events of a DCQCN sender: congestion, recovery by time, by bytes and by both, silence, and ties between them. */

export interface DcqcnEvent {
  /** µs, a multiple of 1/8 */
  at: number;
  kind: 'sent' | 'cnp' | 'time';
  bytes: number;
}

interface Periods {
  /** T, µs */
  timer: number;
  /** B */
  bytes: number;
  /** Least time between two cuts, µs */
  monitor: number;
}

type Mode = 'congested' | 'by time' | 'by bytes' | 'by both' | 'silence';
const MODES: readonly Mode[] = ['congested', 'by time', 'by bytes', 'by both', 'by both', 'silence'];
const GRAIN = 8;
const CNP_INTERVAL = 50;
/** Each stretch of this number is a storm of CNPs, long enough to come to the floor. */
const STORM_EVERY = 60;
const STORM_CNPS = 200;

/** mulberry32. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

class Script {
  readonly events: DcqcnEvent[] = [];
  readonly #random: () => number;
  readonly #periods: Periods;
  #now = 0;
  #stretches = 0;
  /** The last cut: where the timer began. */
  #cut = 0;
  /** Bytes since then. */
  #sent = 0;

  constructor(seed: number, periods: Periods) {
    this.#random = randomOf(seed);
    this.#periods = periods;
  }

  /** One stretch of time in one mode. */
  stretch(): void {
    const storm = ++this.#stretches % STORM_EVERY === 0;
    const mode = storm ? 'congested' : MODES[this.#below(MODES.length)];
    if (mode === 'congested') {
      const cnps = storm ? STORM_CNPS : 1 + this.#below(6);
      for (let i = 0; i < cnps; i++) this.#cnpAfterInterval();
      return;
    }
    if (this.#chance(0.7)) this.#cnpAfterInterval();
    const length = 2 + this.#below(40);
    for (let i = 0; i < length; i++) this.#recover(mode);
  }

  #recover(mode: Mode): void {
    const { timer, bytes } = this.#periods;
    if (mode === 'silence') {
      this.#pass(this.#random() * 8 * timer);
      this.#add('time', 0);
    } else if (mode === 'by time') {
      this.#passOrTie(timer);
      this.#add('sent', this.#below(Math.min(4096, bytes / 64)));
    } else {
      if (mode === 'by bytes') this.#pass(this.#random() * 2);
      else this.#passOrTie(timer);
      this.#add('sent', this.#amount(bytes));
    }
  }

  #cnpAfterInterval(): void {
    const { monitor, timer } = this.#periods;
    const which = this.#random();
    if (which < 0.1) this.#pass(this.#random() * monitor);
    else if (which < 0.2) this.#now = Math.max(this.#now, this.#cut + monitor);
    else if (which < 0.35) this.#tie(timer);
    else this.#pass(CNP_INTERVAL);
    if (this.#chance(0.3)) this.#add('sent', this.#below(4096));
    this.#add('cnp', 0);
    if (this.#cut > 0 && this.#now - this.#cut < monitor) return;
    this.#cut = this.#now;
    this.#sent = 0;
  }

  /** A part of B, all that is missing to its next multiple, or several times B. */
  #amount(bytes: number): number {
    const which = this.#random();
    if (which < 0.2) return bytes - (this.#sent % bytes);
    if (which < 0.25) return bytes * 2 + this.#below(bytes);
    return 1 + this.#below(bytes * 1.2);
  }

  #passOrTie(period: number): void {
    if (this.#chance(0.3)) this.#tie(period);
    else this.#pass(this.#random() * period);
  }

  /** To the next time at which the timer expires. */
  #tie(period: number): void {
    const periods = Math.floor((this.#now - this.#cut) / period) + 1;
    this.#now = this.#cut + periods * period;
  }

  #pass(time: number): void {
    this.#now += Math.round(time * GRAIN) / GRAIN;
  }

  #add(kind: DcqcnEvent['kind'], bytes: number): void {
    this.#sent += bytes;
    this.events.push({ at: this.#now, kind, bytes });
  }

  #chance(share: number): boolean {
    return this.#random() < share;
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }
}

export function drawDcqcnEvents(seed: number, count: number, periods: Periods): DcqcnEvent[] {
  const script = new Script(seed, periods);
  while (script.events.length < count) script.stretch();
  return script.events.slice(0, count);
}

/** Draws when marked packets arrive: together, near to each other, and at multiples of half of the CNP interval (µs) after one another. */
export function drawMarks(seed: number, count: number, interval: number): number[] {
  const random = randomOf(seed);
  const marks: number[] = [];
  let now = 0;
  while (marks.length < count) {
    const which = random();
    if (which < 0.4) now += (interval / 2) * Math.floor(random() * 4);
    else now += Math.round(random() * (which < 0.6 ? 2 : 0.5) * interval * GRAIN) / GRAIN;
    marks.push(now);
  }
  return marks;
}
