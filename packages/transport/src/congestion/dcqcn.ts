/**
 * The reaction point of DCQCN: "Congestion Control for Large-Scale RDMA Deployments", Zhu et al., SIGCOMM 2015, §3.1 and figure 7. Window and
 * losses stay with the default controller, for the paper's lossless network is not everywhere.
 */
import type { Clock } from '../times.ts';
import { Aimd } from './aimd.ts';
import type { CongestionController } from './controller.ts';
import type { PathTimes } from './delivery.ts';
import type { Congestion } from './options.ts';

/** The paper's R_C and R_T, Mb/s, and α. */
const CURRENT = 0;
const TARGET = 1;
const ALPHA = 2;
/** Bytes since the byte counter last ran out. */
const BYTES = 3;
/** When the timers of the increase and of α began, and when the rate was cut last, µs. */
const INCREASE_FROM = 4;
const ALPHA_FROM = 5;
const CUT_AT = 6;
const VALUES = 7;

const KBIT = 1000;
/** So near to the line rate it is reached: each step halves what is missing. */
const REACHED = 1 - 2 ** -40;

/**
 * It has no timers of its own: steps that are due are done when the rate is asked for, in the order in which they were due. Both begin with the
 * first CNP. Steps that are due at the time of a CNP come before it.
 *
 * Promise: `rpgMinRate` ≤ current rate ≤ target rate ≤ `rpgMaxRate`, and 0 ≤ α ≤ 1.
 */
export class Dcqcn implements CongestionController {
  readonly #window: Aimd;
  readonly #clock: Clock;
  readonly #parameters: Readonly<Congestion>;
  readonly #values = new Float64Array(VALUES);
  /** Times that timer and byte counter have run out since the last cut. */
  #timeSteps = 0;
  #byteSteps = 0;
  /** A CNP has come. */
  #notified = false;
  /** The current rate is below the line rate. */
  #limited = false;

  constructor(path: PathTimes, parameters: Readonly<Congestion>) {
    this.#window = new Aimd(path);
    this.#clock = path.clock;
    this.#parameters = parameters;
    this.#restart();
  }

  get window(): number {
    return this.#window.window;
  }

  /** 0 at line rate: nothing is held back. */
  get rate(): number {
    if (!this.#limited) return 0;
    this.#pass();
    return this.#limited ? Math.round(this.#values[CURRENT] * KBIT) : 0;
  }

  /** R_C, Mb/s. */
  get currentRate(): number {
    this.#pass();
    return this.#values[CURRENT];
  }

  /** R_T, Mb/s. */
  get targetRate(): number {
    this.#pass();
    return this.#values[TARGET];
  }

  get alpha(): number {
    this.#decay();
    return this.#values[ALPHA];
  }

  onSent(bytes: number): void {
    if (!this.#limited) return;
    this.#pass();
    const values = this.#values;
    const { rpgByteReset } = this.#parameters;
    values[BYTES] += bytes;
    while (this.#limited && values[BYTES] >= rpgByteReset) {
      values[BYTES] -= rpgByteReset;
      this.#byteSteps++;
      this.#increase();
    }
  }

  onAck(packets: number, unackedPsn: number, sendPsn: number): void {
    this.#window.onAck(packets, unackedPsn, sendPsn);
  }

  onLoss(loss: number, unackedPsn: number, sendPsn: number): void {
    this.#window.onLoss(loss, unackedPsn, sendPsn);
  }

  undo(): void {
    this.#window.undo();
  }

  /** Equation 1, and everything that counts begins anew. */
  onCnp(): void {
    const values = this.#values;
    const now = this.#clock[0];
    const { g, rpgMinRate, rateReduceMonitorPeriod } = this.#parameters;
    if (this.#notified && now - values[CUT_AT] < rateReduceMonitorPeriod) return;
    this.#pass();
    this.#decay();
    values[TARGET] = values[CURRENT];
    values[CURRENT] = Math.max(rpgMinRate, values[CURRENT] * (1 - values[ALPHA] / 2));
    values[ALPHA] = (1 - g) * values[ALPHA] + g;
    values[BYTES] = 0;
    values[INCREASE_FROM] = values[ALPHA_FROM] = values[CUT_AT] = now;
    this.#timeSteps = this.#byteSteps = 0;
    this.#notified = true;
    this.#limited = true;
    this.#release();
  }

  reset(): void {
    this.#window.reset();
    this.#restart();
  }

  check(): string | undefined {
    const { rpgMinRate, rpgMaxRate } = this.#parameters;
    const current = this.#values[CURRENT];
    const target = this.#values[TARGET];
    const alpha = this.#values[ALPHA];
    if (!(rpgMinRate <= current && current <= target && target <= rpgMaxRate)) {
      return `a rate of ${current} Mb/s, and ${target} to go to`;
    }
    if (!(alpha >= 0 && alpha <= 1)) return `α is ${alpha}`;
    return this.#window.check();
  }

  #restart(): void {
    const { rpgMaxRate, initialAlpha } = this.#parameters;
    const values = this.#values;
    values.fill(0);
    values[CURRENT] = values[TARGET] = rpgMaxRate;
    values[ALPHA] = initialAlpha;
    this.#timeSteps = this.#byteSteps = 0;
    this.#notified = this.#limited = false;
  }

  /** The steps of the timer that are due. Few are left when the line rate is near, however long that took. */
  #pass(): void {
    const values = this.#values;
    const now = this.#clock[0];
    const { rpgTimeReset } = this.#parameters;
    while (this.#limited && now - values[INCREASE_FROM] >= rpgTimeReset) {
      values[INCREASE_FROM] += rpgTimeReset;
      this.#timeSteps++;
      this.#increase();
    }
  }

  /** Equation 2, once for each K without a CNP. */
  #decay(): void {
    if (!this.#notified) return;
    const values = this.#values;
    const { g, alphaPeriod } = this.#parameters;
    const steps = Math.floor((this.#clock[0] - values[ALPHA_FROM]) / alphaPeriod);
    if (steps <= 0) return;
    values[ALPHA_FROM] += steps * alphaPeriod;
    values[ALPHA] *= (1 - g) ** steps;
  }

  /** Timer or byte counter ran out: fast recovery, additive or hyper increase (figure 7). */
  #increase(): void {
    const values = this.#values;
    const { rpgThreshold, rpgAiRate, rpgHaiRate, rpgMaxRate } = this.#parameters;
    if (Math.max(this.#timeSteps, this.#byteSteps) >= rpgThreshold) {
      const step = Math.min(this.#timeSteps, this.#byteSteps) > rpgThreshold ? rpgHaiRate : rpgAiRate;
      values[TARGET] = Math.min(values[TARGET] + step, rpgMaxRate);
    }
    values[CURRENT] = (values[TARGET] + values[CURRENT]) / 2;
    this.#release();
  }

  /** At line rate nothing is held back any more. */
  #release(): void {
    const values = this.#values;
    const { rpgMaxRate } = this.#parameters;
    if (values[CURRENT] < rpgMaxRate * REACHED) return;
    values[CURRENT] = values[TARGET] = rpgMaxRate;
    this.#limited = false;
  }
}
