/** One-way messages on one queue pair: requests made once and posted again and again. */
import { completionError, WorkCompletion } from './build.mjs';
import { SIGNALED } from './one-thread.mjs';

/** A stream of requests that keeps a number of them outstanding. */
export class Stream {
  #qp;
  #cq;
  #events;
  #batch;
  #requests;
  /** By numbers: what each call posts. */
  #numbers;
  /** Lists of `batch` requests; empty with 1. */
  #lists = [];
  /** Messages that each signaled request of the ring completes. */
  #weights = [];
  #completions = Array.from({ length: 64 }, () => new WorkCompletion());

  /**
   * @param operation SEND, WRITE or READ
   * @param offsets where in the region each message of the ring lies; their count is the messages in flight
   * @param every one request in so many is signaled; the last of the ring always
   * @param events sleep until a completion comes, in place of polling
   * @param batch requests that one call posts; 1 posts them by themselves
   * @param numbers SENDs are posted by numbers
   */
  constructor({ qp, cq, mr, operation, size, offsets, every, remote, events = false, batch = 1, numbers }) {
    this.#qp = qp;
    this.#cq = cq;
    this.#events = events;
    this.#batch = batch;
    // Literals, not spreads: each object made by a spread has a shape of its own, and posting is slower by them.
    this.#requests = offsets.map((offset, i) => {
      const signaled = (i + 1) % every === 0 || i === offsets.length - 1;
      const sgList = [{ mr, offset, length: size }];
      if (operation === 'SEND') return { opcode: 'SEND', signaled, sgList };
      const to = { addr: remote.addr + BigInt(offset), rkey: remote.rkey };
      return { opcode: `RDMA_${operation}`, signaled, sgList, remote: to };
    });
    if (numbers) {
      const flags = this.#requests.map(({ signaled }) => (signaled ? SIGNALED : 0));
      this.#numbers = { mr, offsets, size, flags };
    }
    if (offsets.length % batch !== 0) throw new Error(`a ring of ${offsets.length} in batches of ${batch}`);
    for (let i = 0; batch > 1 && i < offsets.length; i += batch)
      this.#lists.push(this.#requests.slice(i, i + batch));
    let weight = 0;
    for (const { signaled } of this.#requests) {
      weight++;
      if (!signaled) continue;
      this.#weights.push(weight);
      weight = 0;
    }
  }

  /** Sends at least `count` messages, whole rings; resolves with how many once all are complete. */
  async run(count) {
    const qp = this.#qp;
    const cq = this.#cq;
    const requests = this.#requests;
    const lists = this.#lists;
    const batch = this.#batch;
    const weights = this.#weights;
    const completions = this.#completions;
    const ring = requests.length;
    const total = Math.ceil(count / ring) * ring;
    let posted = 0;
    let done = 0;
    let signaled = 0;
    while (done < total) {
      if (this.#numbers !== undefined) posted = this.#postNumbers(posted, Math.min(total, done + ring));
      else if (batch === 1)
        while (posted < total && posted - done < ring) qp.postSend(requests[posted++ % ring]);
      for (; batch > 1 && posted < total && posted - done + batch <= ring; posted += batch)
        qp.postSend(lists[(posted % ring) / batch]);
      const n = cq.pollInto(completions);
      for (let i = 0; i < n; i++) {
        if (!completions[i].ok) throw completionError(completions[i]);
        done += weights[signaled++ % weights.length];
      }
      if (n === 0 && this.#events) await cq.wait();
    }
    return total;
  }

  /** Posts from message `posted` up to `end`. */
  #postNumbers(posted, end) {
    const qp = this.#qp;
    const { mr, offsets, size, flags } = this.#numbers;
    for (; posted < end; posted++) {
      const i = posted % offsets.length;
      qp.postSendOf(mr, offsets[i], size, flags[i]);
    }
    return end;
  }
}
