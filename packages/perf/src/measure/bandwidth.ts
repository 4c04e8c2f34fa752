/** A bandwidth run: as many messages under way as the depth allows, on each queue pair. */
import type { Plan } from '../plan.ts';
import { Completions } from './completions.ts';
import type { Endpoint } from './endpoint.ts';
import { Meter } from './meter.ts';
import type { ReceiveRequests, SendRequests } from './requests.ts';
import type { Watch } from './watch.ts';

/** The part of this side in a run. */
export interface Part {
  /** Messages that it posts; undefined where it posts none. */
  sends: SendRequests | undefined;
  /** Receives that messages of the peer consume; undefined where none do. */
  receives: ReceiveRequests | undefined;
  /** It posts nothing before the first message of the peer has come: a server that sends too. */
  waits: boolean;
}

/**
 * ms that messages get that are under way at the end of a duration. A peer whose own time ended earlier replaces no receives, and many
 * large ones take minutes; perftest waits for none.
 */
const DRAIN_WITHIN = 1000;
/** The part of the timeout that they get at most: the peer waits as long as this side would, and has begun to. */
const DRAIN_PART = 1 / 4;

export async function runBandwidth(endpoint: Endpoint, plan: Plan, part: Part, watch: Watch): Promise<Meter> {
  const run = new BandwidthRun(endpoint, plan, part);
  await run.play(watch);
  return run.meter;
}

class BandwidthRun {
  readonly meter: Meter;
  readonly #plan: Plan;
  readonly #part: Part;
  readonly #completions: Completions;
  readonly #total: number;
  /** By queue pair: messages posted, and done. */
  readonly #posted: Float64Array;
  readonly #done: Float64Array;
  #allPosted = 0;
  #allDone = 0;
  #received = 0;
  #open: boolean;

  constructor(endpoint: Endpoint, plan: Plan, part: Part) {
    this.#plan = plan;
    this.#part = part;
    this.meter = new Meter(plan, part.sends !== undefined);
    this.#completions = new Completions(endpoint.cq, plan, part.receives?.bytes);
    this.#total = plan.iters * plan.qps;
    this.#posted = new Float64Array(plan.qps);
    this.#done = new Float64Array(plan.qps);
    this.#open = part.sends !== undefined && !part.waits;
  }

  async play(watch: Watch): Promise<void> {
    watch.start();
    const { meter } = this;
    // The clock of who only receives starts with the first message.
    if (this.#open) meter.begin();
    const timed = this.#plan.duration !== undefined;
    for (;;) {
      if (timed ? meter.over : this.#isDone) break;
      if (this.#open) this.#post();
      if (this.#poll() > 0) watch.progress(this.#part.sends ? this.#allDone : this.#received);
      else if (!this.#isDone || timed) await this.#completions.pause(watch);
      if (watch.due()) await watch.turn();
    }
    meter.finish();
    if (timed) await this.#drain(watch);
  }

  get #isDone(): boolean {
    const { sends, receives } = this.#part;
    return (
      (sends === undefined || this.#allDone >= this.#total) &&
      (receives === undefined || this.#received >= this.#total)
    );
  }

  #poll(): number {
    return this.#completions.poll(this.#onSent, this.#onReceived);
  }

  /** Posts on each queue pair as many messages as it has room for. */
  #post(): void {
    const { iters, duration, txDepth, cqMod, qps } = this.#plan;
    const sends = this.#part.sends!;
    const most = duration === undefined ? iters : Number.POSITIVE_INFINITY;
    for (let index = 0; index < qps; index++) {
      while (this.#posted[index] < most && this.#posted[index] - this.#done[index] < txDepth) {
        const number = this.#posted[index];
        this.meter.posting(this.#allPosted);
        sends.post(index, number, (number + 1) % cqMod === 0 || number + 1 === most);
        this.#posted[index] = number + 1;
        this.#allPosted++;
      }
    }
  }

  readonly #onSent = (index: number): void => {
    const { cqMod } = this.#plan;
    const count = Math.min(cqMod, this.#posted[index] - this.#done[index]);
    this.#done[index] += count;
    this.#allDone += count;
    this.meter.done(this.#allDone, count);
  };

  readonly #onReceived = (index: number): void => {
    this.#received++;
    if (this.#received === 1) {
      if (this.#part.sends === undefined || this.#part.waits) this.meter.begin();
      if (this.#part.waits) this.#open = true;
    }
    // A side that sends as well counts both only with a duration, as perftest does.
    if (this.#part.sends === undefined || this.#plan.duration !== undefined)
      this.meter.done(this.#received, 1);
    this.#part.receives?.replace(index);
  };

  /** After a duration: what is under way has some time before the dialogue goes on. Messages without a completion behind them stay. */
  async #drain(watch: Watch): Promise<void> {
    const { cqMod, qps } = this.#plan;
    // Silence until then is no trouble.
    watch.progress(this.#allDone);
    const until = performance.now() + Math.min(DRAIN_WITHIN, watch.silenceLimit * DRAIN_PART);
    const under = () => {
      for (let i = 0; i < qps; i++) if (this.#posted[i] - this.#done[i] >= cqMod) return true;
      return false;
    };
    while (this.#part.sends !== undefined && under() && performance.now() < until) {
      if (this.#poll() === 0 || watch.due()) await watch.turn();
    }
  }
}

/** Posts a depth of messages on each queue pair and waits for them (`perform_warm_up`). */
export async function warmUp(
  endpoint: Endpoint,
  plan: Plan,
  sends: SendRequests,
  watch: Watch,
): Promise<void> {
  watch.start(false);
  const completions = new Completions(endpoint.cq, plan);
  let pending = 0;
  const onSent = () => {
    pending--;
  };
  for (let index = 0; index < plan.qps; index++) {
    for (let i = 0; i < plan.txDepth; i++) sends.post(index, 0, true);
    pending = plan.txDepth;
    while (pending > 0) {
      if (completions.poll(onSent, () => {}) > 0) watch.progress(0);
      else await completions.pause(watch);
    }
  }
}
