/** The engine in the program's own thread. */
import type { Link } from '@node-roce/link';
import { Ring } from '@node-roce/transport';
import { assemble, type RunCommand, type Tuning } from './assemble.ts';
import { type CommandName, type Commands, rowOf } from './commands.ts';
import { closedError, type EngineEvents, type EngineFacts, type OwnEngine, ringDoorbell } from './engine.ts';
import type { Pump } from './pump.ts';
import type { Attached, WorkSource } from './serving.ts';

/** The engine in the program's own thread. */
export class InlineEngine implements OwnEngine {
  readonly inline = true;
  readonly facts: EngineFacts;
  readonly poll: (ring: Ring) => void;
  readonly #run: RunCommand;
  readonly #pump: Pump;
  readonly #doorbells: Ring;
  closed = false;

  constructor(link: Link, events: EngineEvents, options?: Tuning) {
    const onCompletionEvent = (cq: number): void => {
      this.#pump.woke();
      events.onCompletionEvent(cq);
    };
    const { run, pump, facts } = assemble(
      link,
      { ...events, onCompletionEvent },
      { ...options, sharedRings: false },
    );
    this.#run = run;
    this.#pump = pump;
    this.poll = pump.poll;
    this.facts = facts;
    this.#doorbells = new Ring(facts.doorbells);
  }

  async call<N extends CommandName>(
    name: N,
    ...args: Parameters<Commands[N]>
  ): Promise<ReturnType<Commands[N]>> {
    return this.execute(name, args);
  }

  execute<N extends CommandName>(name: N, args: Parameters<Commands[N]>): ReturnType<Commands[N]> {
    if (this.closed) throw closedError();
    const result = this.#run(name, args) as ReturnType<Commands[N]>;
    if (rowOf(name).moves) this.#pump.settle();
    return result;
  }

  readonly ring = (qpn: number, recv: boolean): void => {
    if (ringDoorbell(this.#doorbells, qpn, recv)) this.#pump.wake();
  };

  progress(): Promise<void> {
    return this.#pump.progress();
  }

  attach(source: WorkSource): Attached {
    return this.#pump.attach(source);
  }

  ref(): void {
    this.#pump.ref();
  }

  unref(): void {
    this.#pump.unref();
  }

  close(): Promise<void> {
    this.closed = true;
    return this.#pump.close();
  }
}
