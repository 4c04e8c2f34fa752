/** What passes between a program's thread and the thread of its engine. */
import type { UdpLinkOptions } from '@node-roce/link';
import { type AdapterOptions, type AsyncEvent, type Errno, RoceError } from '@node-roce/transport';
import type { CommandName, EngineFacts } from './engine.ts';

export interface WorkerStart {
  link: UdpLinkOptions;
  trace?: string;
  options: Pick<AdapterOptions, 'credits' | 'limits'>;
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
  | { type: 'unusable'; error: PlainError }
  | { type: 'closed' };

/** An error as plain data: a structured clone keeps only name, message and stack. */
export interface PlainError {
  message: string;
  code: string;
  errno: Errno;
  attribute?: string;
}

export function toPlain(error: unknown): PlainError {
  if (error instanceof RoceError) {
    const { message, code, errno, attribute } = error;
    return { message, code, errno, ...(attribute === undefined ? {} : { attribute }) };
  }
  const { message, code } = error as NodeJS.ErrnoException;
  return { message: message ?? String(error), code: code ?? 'ERR_ROCE_ENGINE', errno: 'EIO' };
}

export function fromPlain({ message, code, errno, attribute }: PlainError): RoceError {
  return new RoceError(code, message, { errno, ...(attribute === undefined ? {} : { attribute }) });
}
