/** The life of a queue pair up to its end: failures that completions show, the `closed` promise, requests that nothing completes any more. */
import type { RoceError } from '@node-roce/transport';
import { type CloseListener, Closing, causeOf } from './closing.ts';
import type { FailureListener } from './completion-observer.ts';
import type { CompletionQueue } from './completion-queue.ts';
import { completionError } from './work-completion.ts';

/** The queue pair whose life it is. */
interface Living {
  readonly qpNum: number;
  readonly state: string;
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
}

/** The end of a queue pair, once or, with RESET, again and again. */
export class Life {
  readonly #qp: Living;
  /** Made when somebody asks for the end, or it comes. */
  #closing: Closing | undefined;

  constructor(qp: Living) {
    this.#qp = qp;
  }

  get promise(): Promise<void> {
    this.#watch();
    return this.#ofClosing().promise;
  }

  listen(listener: CloseListener): () => void {
    this.#watch();
    return this.#ofClosing().listen(listener);
  }

  #queues(): Set<CompletionQueue> {
    return new Set([this.#qp.sendCq, this.#qp.recvCq]);
  }

  #ofClosing(): Closing {
    this.#closing ??= new Closing();
    return this.#closing;
  }

  /** Looks at completions of this queue pair that failed. */
  #watch(): void {
    if (this.#closing?.ended) return;
    const onFailure: FailureListener = (failure) => {
      if (failure instanceof Error) this.end(causeOf(failure));
      else if (this.#qp.state === 'ERR') this.end(completionError(failure));
    };
    for (const cq of this.#queues()) cq.observer().watch(this.#qp.qpNum, onFailure);
  }

  /** The end, with its cause if the program has not closed the queue pair. */
  end(cause?: RoceError): void {
    this.#ofClosing().end(cause);
    for (const cq of this.#queues()) cq.unwatch(this.#qp.qpNum);
  }

  #abandon(reason: string): void {
    for (const cq of this.#queues()) cq.abandon(this.#qp.qpNum, reason);
  }

  /** Requests are discarded without a completion; the next connection has an end of its own. */
  reset(): void {
    this.#abandon(`QP ${this.#qp.qpNum} was reset`);
    if (this.#closing?.ended) this.#closing = undefined;
  }

  /** The program has closed it. */
  close(): void {
    this.#abandon(`QP ${this.#qp.qpNum} is closed`);
    this.end();
  }
}
