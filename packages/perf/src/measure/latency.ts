/** Latency runs: one message under way at a time. */
import { silent } from '../errors.ts';
import type { Plan } from '../plan.ts';
import { Completions } from './completions.ts';
import type { Endpoint } from './endpoint.ts';
import { type ReceiveRequests, SendRequests } from './requests.ts';
import type { Watch } from './watch.ts';

/** The times of a latency run. */
export interface LatencyTimes {
  /** ms, when each message was posted; empty with a duration. */
  readonly posted: Float64Array;
  /** With a duration: messages between the margins, and the seconds between them. */
  readonly counted: number;
  readonly seconds: number;
}

/** Seconds without a message at the end of a timed run that only a lost one explains; of a shorter run its half. */
const STALLED_AFTER = 1;

/** Notes when messages are posted; with a duration, counts those that were done between the margins. */
class Clock {
  readonly #plan: Plan;
  readonly #posted: Float64Array;
  #start: number;
  /** With a duration: when the last message was done. */
  #last: number;
  #counted = 0;

  constructor(plan: Plan) {
    this.#plan = plan;
    this.#posted = new Float64Array(plan.iters);
    this.#start = performance.now();
    this.#last = this.#start;
  }

  /** With a duration, its beginning. */
  begin(): void {
    this.#start = performance.now();
  }

  posting(number: number): void {
    if (this.#plan.duration === undefined) this.#posted[number] = performance.now();
  }

  done(): void {
    const { duration, margin } = this.#plan;
    if (duration === undefined) return;
    this.#last = performance.now();
    const at = (this.#last - this.#start) / 1000;
    if (at >= margin && at < duration - margin) this.#counted++;
  }

  get over(): boolean {
    const { duration } = this.#plan;
    return duration !== undefined && performance.now() - this.#start >= duration * 1000;
  }

  /** The time is over before the next message has come. @throws RoceError where it was lost, and nobody retransmits it */
  expire(): void {
    const { service, duration = 0 } = this.#plan;
    const quiet = (performance.now() - this.#last) / 1000;
    if (service !== 'RC' && quiet >= Math.min(STALLED_AFTER, duration / 2))
      throw silent(
        `no message came in the last ${quiet.toFixed(1)} s of the run: ${service} does not retransmit a lost one`,
      );
  }

  get times(): LatencyTimes {
    const { duration = 0, margin } = this.#plan;
    return { posted: this.#posted, counted: this.#counted, seconds: duration - 2 * margin };
  }
}

/** The queue of a run, and how many of its messages went and came. */
class Traffic {
  sent = 0;
  received = 0;
  readonly #completions: Completions;
  readonly #watch: Watch;
  readonly #receives: ReceiveRequests | undefined;

  constructor(endpoint: Endpoint, plan: Plan, watch: Watch, receives?: ReceiveRequests) {
    this.#completions = new Completions(endpoint.cq, plan, receives?.bytes);
    this.#watch = watch;
    this.#receives = receives;
  }

  poll(): number {
    const count = this.#completions.poll(this.#onSent, this.#onReceived);
    if (count > 0) this.#watch.progress(this.sent);
    return count;
  }

  pause(): Promise<void> {
    return this.#completions.pause(this.#watch);
  }

  readonly #onSent = (): void => {
    this.sent++;
  };

  readonly #onReceived = (index: number): void => {
    this.received++;
    this.#receives?.replace(index);
  };
}

/** READ and atomics: the client posts, and waits for the completion. */
export async function askLatency(
  endpoint: Endpoint,
  plan: Plan,
  size: number,
  watch: Watch,
): Promise<LatencyTimes> {
  const requests = new SendRequests(endpoint.sides, endpoint.mr, endpoint.layout, plan, size);
  const traffic = new Traffic(endpoint, plan, watch);
  watch.start();
  const clock = new Clock(plan);
  for (let number = 0; plan.duration === undefined ? number < plan.iters : !clock.over; number++) {
    clock.posting(number);
    requests.post(0, number, true);
    while (traffic.sent <= number) if (traffic.poll() === 0) await traffic.pause();
    clock.done();
  }
  return clock.times;
}

/** SEND and WRITE with immediate: each side answers the message that completed a receive. `receives` are posted. */
export async function messageLatency(
  endpoint: Endpoint,
  plan: Plan,
  { size, receives, begins }: { size: number; receives: ReceiveRequests; begins: boolean },
  watch: Watch,
): Promise<LatencyTimes> {
  const requests = new SendRequests(endpoint.sides, endpoint.mr, endpoint.layout, plan, size);
  const traffic = new Traffic(endpoint, plan, watch, receives);
  const timed = plan.duration !== undefined;
  watch.start();
  const clock = new Clock(plan);
  let awaited = 0;
  for (let number = 0; timed ? !clock.over : number < plan.iters; number++) {
    if (!begins || number > 0) {
      awaited++;
      while (traffic.received < awaited && !clock.over) if (traffic.poll() === 0) await traffic.pause();
      if (traffic.received < awaited) {
        clock.expire();
        break;
      }
      if (awaited === 1 && timed) clock.begin();
      clock.done();
      if (clock.over) break;
    }
    clock.posting(number);
    requests.post(0, number, true);
    while (traffic.sent <= number) if (traffic.poll() === 0) await traffic.pause();
  }
  // The side that began gets the last answer.
  while (!timed && traffic.received < plan.iters) if (traffic.poll() === 0) await traffic.pause();
  return clock.times;
}

/** WRITE: each side polls the last byte of its memory, which is the low byte of the message's number; the server begins. */
export async function memoryLatency(
  endpoint: Endpoint,
  plan: Plan,
  { size, begins }: { size: number; begins: boolean },
  watch: Watch,
): Promise<LatencyTimes> {
  const requests = new SendRequests(endpoint.sides, endpoint.mr, endpoint.layout, plan, size);
  const traffic = new Traffic(endpoint, plan, watch);
  const { mr, layout } = endpoint;
  const own = mr.bytes(layout.sendOffset(0) + size - 1, 1);
  const peers = mr.bytes(layout.receiveOffset(0) + size - 1, 1);
  const timed = plan.duration !== undefined;
  watch.start();
  const clock = new Clock(plan);
  const arrival = async (number: number) => {
    const isHere = () => Atomics.load(peers, 0) === (number & 0xff);
    // With the engine in this thread, a poll takes packets in; with a worker it finds nothing to do.
    while (!isHere() && !clock.over) {
      traffic.poll();
      if (watch.due()) await watch.turn();
    }
    if (!isHere()) clock.expire();
    watch.progress(number);
  };
  let received = 0;
  for (let number = 0; timed ? !clock.over : number < plan.iters; number++) {
    if (!begins || number > 0) await arrival(++received);
    if (clock.over) break;
    clock.posting(number);
    own[0] = number + 1;
    requests.post(0, number, true);
    while (traffic.sent <= number && !clock.over) {
      traffic.poll();
      if (watch.due()) await watch.turn();
    }
    clock.done();
  }
  if (!timed && received < plan.iters) await arrival(++received);
  return clock.times;
}
