/** Messages between a program's thread and the thread of its engine. */
import type { CmEvent } from '@node-roce/cm';
import { type AsyncEvent, type Errno, RoceError } from '@node-roce/transport';
import type { Diagnostic } from '../diagnostics.ts';
import type { Tuning } from './assemble.ts';
import type { CommandName } from './commands.ts';
import type { EngineFacts } from './engine.ts';
import type { LinkOptions } from './open-link.ts';

export interface WorkerStart {
  link: LinkOptions;
  options: Tuning;
  /** One word that the program's thread writes: the diagnostics that somebody there listens to. */
  listening: SharedArrayBuffer;
}

/** To the engine. */
export type ToEngine =
  | { type: 'call'; id: number; name: CommandName; args: unknown[] }
  | { type: 'wake' }
  | { type: 'close' };

/** From the engine. */
export type FromEngine =
  | { type: 'ready'; facts: EngineFacts }
  | { type: 'result'; id: number; value: unknown }
  | { type: 'failed'; id: number; error: PlainError }
  | { type: 'completion'; cq: number }
  | { type: 'event'; event: AsyncEvent }
  | { type: 'cm'; event: CmEvent }
  | { type: 'diagnostics'; told: Diagnostic[] }
  | { type: 'unusable'; error: PlainError }
  /** Closed; with an error where that went wrong, such as a trace that could not be written. */
  | { type: 'closed'; error?: PlainError };

/** An error as plain data: a structured clone keeps only name, message and stack. */
export interface PlainError {
  message: string;
  code: string;
  errno: Errno;
  attribute?: string;
  expected?: string;
}

export function toPlain(error: unknown): PlainError {
  if (error instanceof RoceError) {
    const { message, code, errno, attribute, expected } = error;
    return { message, code, errno, attribute, expected };
  }
  const { message, code } = error as NodeJS.ErrnoException;
  return { message: message ?? String(error), code: code ?? 'ERR_ROCE_ENGINE', errno: 'EIO' };
}

export function fromPlain({ message, code, errno, attribute, expected }: PlainError): RoceError {
  const error = new RoceError(code, message, { errno, attribute });
  // The message has it already: given to the constructor, it would be there twice.
  return Object.assign(error, { expected });
}
