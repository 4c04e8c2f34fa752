/** The engine in a worker thread, as the program's thread sees it. */
import { Worker } from 'node:worker_threads';
import { explainDescriptors } from '@node-roce/link';
import { invalid, Ring, RoceError } from '@node-roce/transport';
import { listening } from '../diagnostics.ts';
import type { CommandName, Commands } from './commands.ts';
import { closedError, type EngineEvents, type EngineFacts, type OwnEngine, ringDoorbell } from './engine.ts';
import { type FromEngine, fromPlain, type ToEngine, type WorkerStart } from './worker-protocol.ts';

/** How often to look whether somebody listens to diagnostics, ms; it is looked at with each control call too. */
const LOOK_MS = 200;

interface Waiting {
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/** The error of a thread that did not start. A bundle that holds the packages has no worker.js next to it. */
function startFailure(cause: NodeJS.ErrnoException): RoceError {
  const codes = ['MODULE_NOT_FOUND', 'ERR_MODULE_NOT_FOUND', 'ERR_INVALID_URL'];
  // webpack makes a worker of its own, which fails with a TypeError.
  const isOfBundle = codes.includes(cause.code ?? '') || /^(Type|Reference|Syntax)Error$/.test(cause.name);
  return new RoceError('ERR_ROCE_ENGINE', `the engine's thread did not start: ${cause.message}`, {
    errno: 'EIO',
    cause,
    ...(isOfBundle && {
      expected:
        'worker.js next to the program: keep node-roce out of the bundle, or bundle node-roce/worker as worker.js (docs/guide/deployment.md)',
    }),
  });
}

/** Bundlers look for this form of `new Worker`; in a bundle that is a CommonJS module it throws. */
function startThread(workerData: WorkerStart): Worker {
  try {
    return new Worker(new URL('./worker.js', import.meta.url), {
      workerData,
      // None of the program's flags: --input-type and loaders are about the program's own files.
      execArgv: [],
    });
  } catch (error) {
    throw startFailure(error as NodeJS.ErrnoException);
  }
}

/** An engine in a worker, behind the interface of an engine in this thread. */
export class WorkerEngine implements OwnEngine {
  readonly inline = false;
  readonly facts: EngineFacts;
  readonly #worker: Worker;
  readonly #events: EngineEvents;
  readonly #doorbells: Ring;
  readonly #waiting = new Map<number, Waiting>();
  /** The channels with subscribers, for the engine to see. */
  readonly #wanted: Int32Array<SharedArrayBuffer>;
  readonly #looking: NodeJS.Timeout;
  #nextId = 1;
  #refed = true;
  #closing: ((error?: unknown) => void) | undefined;
  #dead: RoceError | undefined;

  /** Starts the thread; rejects with the link's error if the link can't be opened. */
  static open(options: Omit<WorkerStart, 'listening'>, events: EngineEvents): Promise<WorkerEngine> {
    const wanted = new Int32Array(new SharedArrayBuffer(4));
    const workerData: WorkerStart = { ...options, listening: wanted.buffer };
    const worker = startThread(workerData);
    return new Promise((resolve, reject) => {
      const onExit = (code: number) => reject(startFailure(new Error(`it ended with code ${code}`)));
      const onError = (error: unknown) => {
        const explained = explainDescriptors(error);
        reject(explained instanceof RoceError ? explained : startFailure(error as NodeJS.ErrnoException));
      };
      worker.once('error', onError);
      worker.once('exit', onExit);
      worker.once('message', (message: FromEngine) => {
        worker.off('error', onError);
        worker.off('exit', onExit);
        if (message.type === 'ready') resolve(new WorkerEngine(worker, message.facts, events, wanted));
        else if (message.type === 'unusable') reject(fromPlain(message.error));
      });
    });
  }

  private constructor(
    worker: Worker,
    facts: EngineFacts,
    events: EngineEvents,
    wanted: Int32Array<SharedArrayBuffer>,
  ) {
    this.#worker = worker;
    this.#wanted = wanted;
    this.#look();
    this.#looking = setInterval(() => this.#look(), LOOK_MS).unref();
    this.facts = facts;
    this.#events = events;
    this.#doorbells = new Ring(facts.doorbells);
    worker.on('message', (message: FromEngine) => this.#take(message));
    worker.on('error', (error) => this.#die(error));
    worker.on('exit', (code) => this.#die(new Error(`its thread ended with code ${code}`)));
  }

  /** Nothing reports that somebody begins to listen: it has to be looked at. */
  #look(): void {
    Atomics.store(this.#wanted, 0, listening());
  }

  #take(message: FromEngine): void {
    switch (message.type) {
      case 'diagnostics':
        this.#events.onDiagnostics(message.told);
        break;
      case 'result':
        this.#settle(message.id)?.resolve(message.value);
        break;
      case 'failed':
        this.#settle(message.id)?.reject(fromPlain(message.error));
        break;
      case 'completion':
        this.#events.onCompletionEvent(message.cq);
        break;
      case 'event':
        this.#events.onAsyncEvent(message.event);
        break;
      case 'cm':
        this.#events.onCmEvent(message.event);
        break;
      case 'closed':
        this.#closing?.(message.error && fromPlain(message.error));
        break;
      default:
    }
  }

  #settle(id: number): Waiting | undefined {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (this.#waiting.size === 0 && !this.#refed) this.#worker.unref();
    return waiting;
  }

  #die(cause: unknown): void {
    if (this.#dead) return;
    clearInterval(this.#looking);
    this.#dead = this.#closing
      ? closedError()
      : new RoceError('ERR_ROCE_DEVICE_FATAL', 'the engine is gone', { errno: 'EIO', cause });
    for (const waiting of this.#waiting.values()) waiting.reject(this.#dead);
    this.#waiting.clear();
    if (this.#closing) this.#closing();
    else this.#events.onAsyncEvent({ type: 'DEVICE_FATAL', error: cause });
  }

  #post(message: ToEngine): void {
    this.#worker.postMessage(message);
  }

  call<N extends CommandName>(name: N, ...args: Parameters<Commands[N]>): Promise<ReturnType<Commands[N]>> {
    return this.execute(name, args);
  }

  execute<N extends CommandName>(name: N, args: Parameters<Commands[N]>): Promise<ReturnType<Commands[N]>> {
    if (this.closed) return Promise.reject(this.#dead ?? closedError());
    return new Promise((resolve, reject) => {
      const id = this.#nextId++;
      this.#waiting.set(id, { resolve: resolve as Waiting['resolve'], reject });
      // A command in flight holds the process, also where the device does not.
      this.#worker.ref();
      this.#look();
      try {
        this.#post({ type: 'call', id, name, args });
      } catch (error) {
        const { message } = error as Error;
        this.#settle(id)?.reject(invalid('arguments', message, 'values that another thread can take'));
      }
    });
  }

  attach(): never {
    throw new RoceError('ERR_ROCE_NOT_SUPPORTED', 'another process posts to an engine in this thread alone', {
      errno: 'EOPNOTSUPP',
      attribute: 'engine',
      expected: 'inline',
    });
  }

  readonly ring = (qpn: number, recv: boolean): void => {
    if (ringDoorbell(this.#doorbells, qpn, recv) && !this.#dead) this.#post({ type: 'wake' });
  };

  readonly poll = (): void => {};

  /** The engine runs by itself: a turn of this thread's loop is enough for it to have moved on. */
  progress(): Promise<void> {
    return new Promise((resolve) => {
      setImmediate(resolve);
    });
  }

  get closed(): boolean {
    return this.#dead !== undefined || this.#closing !== undefined;
  }

  ref(): void {
    this.#refed = true;
    this.#worker.ref();
  }

  unref(): void {
    this.#refed = false;
    if (this.#waiting.size === 0) this.#worker.unref();
  }

  async close(): Promise<void> {
    if (this.closed) return;
    this.#worker.ref();
    try {
      await new Promise<void>((resolve, reject) => {
        this.#closing = (error) => (error === undefined ? resolve() : reject(error));
        this.#post({ type: 'close' });
      });
    } finally {
      await this.#worker.terminate();
    }
  }
}
