/** The connection manager of a device as a program's side sees it: commands, and events of what it began or accepted. */
import type { CmEvent } from '@node-roce/cm';
import type { CommandName, Commands } from './commands.ts';
import type { Engine } from './engine.ts';

type CmCommand = CommandName & `cm${string}`;

/** The listener of the connections of one context. */
export interface ConnectionListener {
  /** Called in the order in which things happened. */
  onEvent(event: CmEvent): void;
  /** The device is closed, or failed: no event comes any more. */
  onClosed(reason: unknown): void;
}

/** Has one user at a time: `@node-roce/rdmacm`. */
export class ConnectionPort {
  /** Set before the first call. */
  listener: ConnectionListener | undefined;
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /** Runs a command of the engine's connection manager (`Connections` in `@node-roce/cm`). */
  call<N extends CmCommand>(name: N, ...args: Parameters<Commands[N]>): Promise<ReturnType<Commands[N]>> {
    return this.#engine.call(name, ...args);
  }
}
