/** Takes completions off the queue of a test. */
import type { WcStatusName } from '@node-roce/verbs-api';
import { type CompletionQueue, completionError, WorkCompletion } from '@node-roce/verbs-api';
import { broken } from '../errors.ts';
import type { Plan } from '../plan.ts';
import { indexOf, isReceive } from './requests.ts';
import type { Watch } from './watch.ts';

const BATCH = 16;
/** ms that a wait for an event lasts at most, so that a peer that is gone is noticed. */
const LOOK_EVERY = 250;

/** A failed completion in plain words. */
const MEANINGS: Partial<Record<WcStatusName, string>> = {
  LOC_LEN_ERR: 'the peer sends larger messages: both sides need the same size',
  REM_INV_REQ_ERR: 'the peer takes no such requests: does it run the same test?',
  REM_ACCESS_ERR: 'the peer refused the access to its memory: does it run the same test, with the same size?',
  RETRY_EXC_ERR: 'the peer no longer answers',
  // Where a request of our own had failed, its completion would have come before.
  WR_FLUSH_ERR: 'the peer left in the middle of the run',
};
/** Of SENDs, which every queue pair takes. */
const SEND_MEANINGS: typeof MEANINGS = {
  ...MEANINGS,
  REM_INV_REQ_ERR: 'the peer expects smaller messages: both sides need the same size',
};

/** The completions of a run: messages that were sent, and those that were received. */
export class Completions {
  readonly #cq: CompletionQueue;
  readonly #events: boolean;
  readonly #meanings: typeof MEANINGS;
  readonly #receiveBytes: number | undefined;
  readonly #batch = Array.from({ length: BATCH }, () => new WorkCompletion());

  /** @param receiveBytes of each message that completes a receive, with the GRH of a datagram */
  constructor(cq: CompletionQueue, { events, verb }: Plan, receiveBytes?: number) {
    this.#cq = cq;
    this.#events = events;
    this.#meanings = verb === 'send' ? SEND_MEANINGS : MEANINGS;
    this.#receiveBytes = receiveBytes;
  }

  /**
   * Takes all completions, calling back with the queue pair's index for each; returns how many.
   * @throws RoceError ERR_ROCE_COMPLETION; ERR_ROCE_EXCHANGE for a message of another size
   */
  poll(onSent: (index: number) => void, onReceived: (index: number) => void): number {
    const batch = this.#batch;
    const count = this.#cq.pollInto(batch);
    for (let i = 0; i < count; i++) {
      const wc = batch[i];
      if (wc.statusCode !== 0) throw completionError(wc, this.#meanings[wc.status]);
      const id = wc.wrIdLow;
      if (!isReceive(id)) onSent(indexOf(id));
      else if (wc.byteLen === this.#receiveBytes) onReceived(indexOf(id));
      else throw this.#otherSize(wc.byteLen);
    }
    return count;
  }

  #otherSize(bytes: number): Error {
    return broken(
      `the peer sent ${bytes} bytes in place of ${this.#receiveBytes}: both sides need the same size`,
    );
  }

  /** Between two polls of a loop that found nothing to do. */
  async pause(watch: Watch): Promise<void> {
    if (!this.#events) {
      if (watch.due()) await watch.turn();
      return;
    }
    const silence = new AbortController();
    const timer = setTimeout(() => silence.abort(), LOOK_EVERY);
    try {
      await this.#cq.wait({ signal: silence.signal });
    } catch (error) {
      if (!silence.signal.aborted) throw error;
    } finally {
      clearTimeout(timer);
    }
    await watch.check();
  }
}
