/**
 * The reaction point and the notification point of DCQCN by themselves, from the text of the paper: Y. Zhu et al.,
 * "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, §3.1 and its figures 6 and 7. Nothing of the
 * engine or the model is used. Times are in µs, rates in bits per second.
 *
 * Where the paper leaves a choice:
 * - A counter rises before the phase is chosen (figure 7), so fast recovery has F - 1 increases of one cause.
 * - alpha stays 1 and no timer runs until the first CNP: a flow starts at line rate and has nothing to recover.
 * - What is due at the instant of an event happens before it.
 * - Bytes beyond the expiry of the byte counter count for the next one; each expiry is one increase.
 * - Target and current rate end at the line rate; the current rate does not fall below a least rate.
 *
 * node test/sim/dcqcn-reference.mjs [seed]: rate, target and alpha after each of 10,000 events.
 */

/**
 * @typedef {{ at: number, kind: 'sent' | 'cnp' | 'time', bytes: number }} Event `time` is nothing but the time passing
 * @typedef {{ rate: number, target: number, alpha: number }} State
 * @typedef {{ lineRate: number, minRate: number, g: number, alphaPeriod: number, timerPeriod: number,
 *   byteCount: number, threshold: number, additive: number, hyper: number }} Parameters
 */

/**
 * The paper's parameters: g 1/256, K 55 µs, T 55 µs, B 10 MB, F 5, R_AI 40 Mb/s. It has no value for R_HAI and no floor.
 *
 * @type {Parameters}
 */
export const PAPER = {
  lineRate: 40e9,
  minRate: 10e6,
  g: 1 / 256,
  alphaPeriod: 55,
  timerPeriod: 55,
  byteCount: 10e6,
  threshold: 5,
  additive: 40e6,
  hyper: 400e6,
};

/**
 * Returns the state after each event, and how often each rule was applied.
 *
 * @param {readonly Event[]} events in order of time
 * @param {Parameters} parameters
 * @returns {{ states: State[], counts: Record<'cuts' | 'decays' | 'fast' | 'additive' | 'hyper', number> }}
 */
export function reactionPoint(events, parameters) {
  const { lineRate, minRate, g, alphaPeriod, timerPeriod, byteCount, threshold } = parameters;
  const counts = { cuts: 0, decays: 0, fast: 0, additive: 0, hyper: 0 };
  let [rate, target, alpha] = [lineRate, lineRate, 1];
  let [alphaDue, timerDue] = [Infinity, Infinity];
  let [timerExpiries, byteExpiries, bytesCounted] = [0, 0, 0];

  function increase() {
    if (Math.max(timerExpiries, byteExpiries) < threshold) {
      counts.fast++;
    } else if (Math.min(timerExpiries, byteExpiries) > threshold) {
      counts.hyper++;
      target += parameters.hyper;
    } else {
      counts.additive++;
      target += parameters.additive;
    }
    target = Math.min(target, lineRate);
    rate = (target + rate) / 2;
  }

  function passTimeTo(now) {
    while (Math.min(alphaDue, timerDue) <= now) {
      if (alphaDue <= timerDue) {
        counts.decays++;
        alpha = (1 - g) * alpha;
        alphaDue += alphaPeriod;
      } else {
        timerExpiries++;
        timerDue += timerPeriod;
        increase();
      }
    }
  }

  function receiveCnp(now) {
    counts.cuts++;
    target = rate;
    rate = Math.max(rate * (1 - alpha / 2), minRate);
    alpha = (1 - g) * alpha + g;
    [timerExpiries, byteExpiries, bytesCounted] = [0, 0, 0];
    [alphaDue, timerDue] = [now + alphaPeriod, now + timerPeriod];
  }

  function send(bytes) {
    if (timerDue === Infinity) return;
    bytesCounted += bytes;
    while (bytesCounted >= byteCount) {
      bytesCounted -= byteCount;
      byteExpiries++;
      increase();
    }
  }

  const states = events.map((event) => {
    passTimeTo(event.at);
    if (event.kind === 'cnp') receiveCnp(event.at);
    else if (event.kind === 'sent') send(event.bytes);
    return { rate, target, alpha };
  });
  return { states, counts };
}

/**
 * Returns the times of a flow's CNPs. A marked packet is answered at once if no CNP was sent in the last interval (the
 * paper: "a CNP is sent immediately"). Of the marks inside an interval the paper says "at most one CNP packet every N
 * microseconds for the flow, if any packet that arrives within that time window was marked", which has two readings:
 * they draw nothing, or (`atWindowEnd`) they draw one CNP at the end of the interval, which opens the next.
 *
 * @param {readonly number[]} marks times of marked packets, in order
 * @param {{ interval: number, atWindowEnd: boolean }} pacing
 * @returns {number[]}
 */
export function notificationPoint(marks, { interval, atWindowEnd }) {
  /** @type {number[]} */
  const sent = [];
  let windowEnd = -Infinity;
  let isPending = false;
  const closeWindow = () => {
    isPending = false;
    sent.push(windowEnd);
    windowEnd += interval;
  };
  for (const at of marks) {
    if (isPending && windowEnd <= at) closeWindow();
    if (at >= windowEnd) {
      sent.push(at);
      windowEnd = at + interval;
    } else {
      isPending = atWindowEnd;
    }
  }
  if (isPending) closeWindow();
  return sent;
}

/** mulberry32. */
function randomOf(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * Draws a list of events that visits every phase: congestion (a CNP every 50 to 60 µs), calm with many bytes, silence
 * (only time), and CNPs at the very instant of an expiry. The times are whole.
 *
 * @param {number} seed
 * @param {number} count
 * @param {Parameters} parameters
 * @returns {Event[]}
 */
export function drawEvents(seed, count, { timerPeriod, byteCount }) {
  const random = randomOf(seed);
  const draw = (least, most) => least + Math.floor(random() * (most - least + 1));
  /** @type {Event[]} */
  const events = [];
  let at = draw(0, 1000);
  let lastCnp = at;
  const cnp = () => {
    lastCnp = at;
    events.push({ at, kind: 'cnp', bytes: 0 });
  };
  const regimes = [
    () => {
      at += draw(50, 60);
      cnp();
    },
    () => {
      at += draw(1, 30);
      events.push({ at, kind: 'sent', bytes: draw(1, Math.floor(byteCount / 4)) });
    },
    () => {
      at += draw(1, 4 * timerPeriod);
      events.push({ at, kind: 'time', bytes: 0 });
    },
    () => {
      at = lastCnp + timerPeriod * (Math.floor((at - lastCnp) / timerPeriod) + draw(1, 3));
      if (random() < 0.3) cnp();
      else events.push({ at, kind: 'sent', bytes: byteCount });
    },
    () => {
      at += draw(1, 2 * timerPeriod);
      const kind = draw(0, 9);
      if (kind === 0) cnp();
      else if (kind < 7) events.push({ at, kind: 'sent', bytes: draw(0, byteCount) });
      else events.push({ at, kind: 'time', bytes: 0 });
    },
  ];
  while (events.length < count) {
    const step = regimes[draw(0, regimes.length - 1)];
    for (let left = draw(1, 60); left > 0 && events.length < count; left--) step();
  }
  return events;
}

if (process.argv[1] === import.meta.filename) {
  const events = drawEvents(Number(process.argv[2] ?? 1), 10_000, PAPER);
  const { states, counts } = reactionPoint(events, PAPER);
  events.forEach(({ at, kind, bytes }, index) => {
    const { rate, target, alpha } = states[index];
    console.log(`${at} ${kind} ${bytes}: ${rate} ${target} ${alpha}`);
  });
  console.log(JSON.stringify(counts));
}
