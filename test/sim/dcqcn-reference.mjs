/**
 * DCQCN as a second program computes it: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, §3.1
 * (figures 6 and 7, equations 1 to 4). It was written independently of the engine, by another hand, before that hand had read the
 * engine's controller or its tests: from what is published about the paper's algorithm, and from docs/congestion.md where the
 * paper leaves a choice. It imports nothing.
 *
 * The engine adds and halves doubles step by step. Here every quantity is a whole number of 2^−192; α is a power and the rates
 * are the closed form of a run of equal steps: after n steps of size s the target is target + n·s, and the gap between target and
 * current rate is s + (gap − s)/2^n.
 */

/** The paper's parameters; rates in Mb/s, times in µs. R_HAI and the floor have no value in the paper. */
export const PAPER = {
  g: 1 / 256,
  initialAlpha: 1,
  alphaPeriod: 55,
  timer: 55,
  bytes: 10_000_000,
  threshold: 5,
  additive: 40,
  hyper: 100,
  lineRate: 40_000,
  floorRate: 1,
  monitor: 4,
};

const PLACES = 192n;
const ONE = 1n << PLACES;

/** A double as a whole number of 2^−192, without rounding. */
function exact(number) {
  let scaled = number;
  let places = 0n;
  while (!Number.isInteger(scaled)) {
    scaled *= 2;
    places++;
  }
  if (places > PLACES) throw new RangeError(`${number} has more than ${PLACES} binary places`);
  return BigInt(scaled) << (PLACES - places);
}

const rounded = (value) => Number(value) / 2 ** Number(PLACES);
const product = (a, b) => (a * b) >> PLACES;
/** Math.min and Math.max take no BigInts. */
const lesser = (a, b) => (a - b < 0n ? a : b);
const greater = (a, b) => (a - b > 0n ? a : b);

/** base^exponent by squaring. */
function power(base, exponent) {
  if (exponent === 0n) return ONE;
  const half = power(product(base, base), exponent / 2n);
  return exponent % 2n === 0n ? half : product(half, base);
}

/** Counts the situations that a trace came through, so that a test can demand that it did. */
class Visits {
  counts = {};
  #inEvent = new Set();

  count(situation) {
    this.counts[situation] = (this.counts[situation] ?? 0) + 1;
  }

  step(phase, cause, most, least, threshold) {
    this.count(`${phase} by ${cause}`);
    this.#inEvent.add(`${phase} by ${cause}`);
    if (most === threshold - 1n) this.count('fast, max(T, BC) = F − 1');
    if (most === threshold) this.count('additive, max(T, BC) = F');
    if (least === threshold) this.count('additive, min(T, BC) = F');
    if (least === threshold + 1n) this.count('hyper, min(T, BC) = F + 1');
  }

  endEvent() {
    for (const phase of ['fast', 'additive', 'hyper']) {
      if (this.#inEvent.has(`${phase} by timer`) && this.#inEvent.has(`${phase} by bytes`)) {
        this.count(`${phase} by timer and bytes at once`);
      }
    }
    this.#inEvent.clear();
  }
}

/** The sender of one flow (figure 7). Times of calls do not go back. */
class ReactionPoint {
  visits = new Visits();
  #p;
  /** The last cut, and α just after it. Before the first cut no clock runs. */
  #begun = null;
  #alphaAtCut;
  /** Periods of K since the cut that were counted as visits. */
  #quiet = 0n;
  /** T and BC, and the bytes since the cut. */
  #timers = 0n;
  #counters = 0n;
  #sent = 0n;
  /** Bytes since the packet at which the byte counter expired last. */
  #sinceExpiry = 0n;
  /** Equal steps since `target` and `gap` were what they are here. */
  #run;

  constructor(parameters) {
    const { threshold, ...quantities } = parameters;
    this.#p = Object.fromEntries(Object.entries(quantities).map(([name, value]) => [name, exact(value)]));
    this.#p.threshold = BigInt(threshold);
    this.#alphaAtCut = this.#p.initialAlpha;
    // A flow starts at line rate.
    this.#run = { target: this.#p.lineRate, gap: 0n, step: 0n, length: 0n };
  }

  /** Packets with so many bytes leave. The byte counter expires for every B bytes since the cut. */
  sent(at, bytes) {
    const now = exact(at);
    this.#expire(now);
    if (this.#begun === null) return;
    this.#sent += exact(bytes);
    this.#sinceExpiry += exact(bytes);
    const due = this.#sent / this.#p.bytes;
    if (due > this.#counters) this.#visitExpiry(now, due - this.#counters);
    while (this.#counters < due) {
      this.#counters++;
      this.#increase('bytes');
    }
  }

  /** A CNP arrives: equation 1, and timer, byte counter, T, BC and the timer of α start again. */
  cnp(at) {
    const { g, floorRate, monitor } = this.#p;
    const now = exact(at);
    this.#expire(now);
    if (this.#begun !== null && now - this.#begun < monitor) {
      this.visits.count('CNP ignored');
      return;
    }
    this.#visitCut(now);
    const before = this.#target - this.#gap;
    const alpha = this.#alpha(now);
    const cut = product(before, ONE - alpha / 2n);
    if (cut < floorRate) this.visits.count('rate held at the floor');
    this.#run = { target: before, gap: before - greater(cut, floorRate), step: 0n, length: 0n };
    this.#alphaAtCut = product(ONE - g, alpha) + g;
    this.#begun = now;
    this.#sent = this.#sinceExpiry = this.#timers = this.#counters = this.#quiet = 0n;
  }

  stateAt(at) {
    const now = exact(at);
    this.#expire(now);
    this.visits.endEvent();
    return {
      rate: rounded(this.#target - this.#gap),
      target: rounded(this.#target),
      alpha: rounded(this.#alpha(now)),
    };
  }

  get #target() {
    return this.#run.target + this.#run.step * this.#run.length;
  }

  get #gap() {
    return this.#run.step + ((this.#run.gap - this.#run.step) >> this.#run.length);
  }

  #quietPeriods(now) {
    return this.#begun === null ? 0n : (now - this.#begun) / this.#p.alphaPeriod;
  }

  /** Equation 2, once for every K since the cut. */
  #alpha(now) {
    return product(this.#alphaAtCut, power(ONE - this.#p.g, this.#quietPeriods(now)));
  }

  /** Applies the steps of the timer that are due at `now` or before. */
  #expire(now) {
    if (this.#begun === null) return;
    const due = (now - this.#begun) / this.#p.timer;
    if (due > this.#timers + 1n) this.visits.count('several timer periods in one event');
    while (this.#timers < due) {
      this.#timers++;
      this.#increase('timer');
    }
    const quiet = this.#quietPeriods(now);
    if (quiet > this.#quiet) this.visits.count('alpha decays');
    if (quiet > this.#quiet + 1n) this.visits.count('alpha decays by several periods in one event');
    this.#quiet = quiet;
  }

  /** Equation 3, or 4 with R_AI or R_HAI. The target stays at the line rate or below. */
  #increase(cause) {
    const { threshold, additive, hyper, lineRate } = this.#p;
    const most = greater(this.#timers, this.#counters);
    const least = lesser(this.#timers, this.#counters);
    const phase = most < threshold ? 'fast' : least > threshold ? 'hyper' : 'additive';
    this.visits.step(phase, cause, most, least, threshold);
    const wanted = { fast: 0n, additive, hyper }[phase];
    const target = this.#target;
    const step = lesser(wanted, lineRate - target);
    if (step < wanted) this.visits.count('target held at the line rate');
    if (step !== this.#run.step) this.#run = { target, gap: this.#gap, step, length: 0n };
    this.#run.length++;
  }

  #visitExpiry(now, times) {
    const { bytes, timer } = this.#p;
    if (times > 1n) this.visits.count('several byte counter periods in one event');
    if (this.#sinceExpiry < bytes) this.visits.count('byte counter expires thanks to its remainder');
    if (this.#sent % bytes === 0n) this.visits.count('byte counter expires with no remainder');
    if (now > this.#begun && (now - this.#begun) % timer === 0n)
      this.visits.count('bytes at the time of the timer');
    this.#sinceExpiry = 0n;
  }

  #visitCut(now) {
    const { threshold, timer, monitor, lineRate, floorRate } = this.#p;
    const since = this.#begun === null ? 0n : now - this.#begun;
    const most = greater(this.#timers, this.#counters);
    const least = lesser(this.#timers, this.#counters);
    this.visits.count('cut');
    if (most === 0n) this.visits.count('cut before any step');
    else if (most < threshold) this.visits.count('cut in fast recovery');
    else this.visits.count(least > threshold ? 'cut in hyper increase' : 'cut in additive increase');
    if (since > 0n && since % timer === 0n) this.visits.count('cut at the time of the timer');
    if (since > 0n && since < timer) this.visits.count('cut while the timer runs');
    if (this.#sent % this.#p.bytes > 0n) this.visits.count('cut while the byte counter runs');
    if (since > 0n && since === monitor) this.visits.count('cut at the end of the monitor period');
    const before = this.#target - this.#gap;
    if (lineRate - before < lineRate >> 30n) this.visits.count('cut from the line rate');
    if (before === floorRate) this.visits.count('cut from the floor');
  }
}

/**
 * @param {{ at: number, kind: 'sent' | 'cnp' | 'time', bytes: number }[]} events
 * @returns {{ states: { rate: number, target: number, alpha: number }[], visits: Record<string, number> }} the state after each
 *   event, and how often each situation came up
 */
export function reactionPoint(events, parameters) {
  const point = new ReactionPoint(parameters);
  const states = events.map(({ at, kind, bytes }) => {
    if (kind === 'sent') point.sent(at, bytes);
    else if (kind === 'cnp') point.cnp(at);
    return point.stateAt(at);
  });
  return { states, visits: point.visits.counts };
}

/**
 * The receiver of one flow (figure 6): a mark is answered at once unless a CNP left within the last interval; marks within an
 * interval are answered by one CNP at its end. A mark at the very end of an interval belongs to the next.
 *
 * @param {number[]} marks times at which marked packets arrive
 * @returns {{ times: number[], visits: Record<string, number> }} when CNPs leave
 */
export function notificationPoint(marks, interval) {
  const times = [];
  const visits = { atOnce: 0, atWindowEnd: 0, inOwedWindow: 0, onOwedBoundary: 0, onFreeBoundary: 0 };
  let windowEnd = Number.NEGATIVE_INFINITY;
  let owed = false;
  const settle = () => {
    times.push(windowEnd);
    windowEnd += interval;
    owed = false;
    visits.atWindowEnd++;
  };
  for (const at of marks) {
    if (at === windowEnd) visits[owed ? 'onOwedBoundary' : 'onFreeBoundary']++;
    if (owed && at < windowEnd) visits.inOwedWindow++;
    if (owed && windowEnd <= at) settle();
    if (at < windowEnd) {
      owed = true;
    } else {
      times.push(at);
      windowEnd = at + interval;
      visits.atOnce++;
    }
  }
  if (owed) settle();
  return { times, visits };
}
