/** The end of a queue pair: a promise and an event, with the cause. */
import { RoceError } from '@node-roce/transport';

/** Called at the end of a queue pair; without a cause if the program closed it. */
export type CloseListener = (cause: RoceError | undefined) => void;

/** The end of a queue pair: the `closed` promise and its listeners. */
export class Closing {
  /** Made with the first one. */
  #listeners: Set<CloseListener> | undefined;
  #ended = false;
  #cause: RoceError | undefined;
  #settle: { resolve(): void; reject(cause: RoceError): void } | undefined;
  #promise: Promise<void> | undefined;

  get ended(): boolean {
    return this.#ended;
  }

  get promise(): Promise<void> {
    this.#promise ??= new Promise<void>((resolve, reject) => {
      if (!this.#ended) this.#settle = { resolve, reject };
      else if (this.#cause === undefined) resolve();
      else reject(this.#cause);
    });
    // A program that only looks at the event has no handler here.
    this.#promise.catch(() => {});
    return this.#promise;
  }

  /** Adds a listener; returns a function that takes it off. Called at once, in a microtask, if the end has come. */
  listen(listener: CloseListener): () => void {
    if (this.#ended) queueMicrotask(() => listener(this.#cause));
    else {
      this.#listeners ??= new Set();
      this.#listeners.add(listener);
    }
    return () => void this.#listeners?.delete(listener);
  }

  /** The first call counts. */
  end(cause?: RoceError): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#cause = cause;
    if (cause === undefined) this.#settle?.resolve();
    else this.#settle?.reject(cause);
    // Not from inside of a turn: a listener may call what it likes, and throw.
    for (const listener of this.#listeners ?? []) queueMicrotask(() => listener(cause));
    this.#listeners = undefined;
  }
}

/** The RoceError of an end; any other reason, for example an abort signal's, becomes its cause. */
export function causeOf(reason: unknown): RoceError {
  if (reason instanceof RoceError) return reason;
  return new RoceError('ERR_ROCE_CLOSED', 'the device is closed', { errno: 'ECANCELED', cause: reason });
}

/** The cause of the end of a queue pair that is in the error state. */
export function failedError(message: string): RoceError {
  return new RoceError('ERR_ROCE_QP_FAILED', message, { errno: 'EIO', attribute: 'qpState' });
}
