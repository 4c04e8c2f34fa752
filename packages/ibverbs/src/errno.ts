/**
 * What a call ended with, the way C has it: a code that is returned, or NULL or −1 and `errno`. Behind each stands
 * a RoceError that says more; `lastError` gives it.
 */
import { constants } from 'node:os';
import { getSystemErrorMap } from 'node:util';
import { RoceError } from '@node-roce/verbs-api';

/**
 * Number of the last error (errno(3)), as `import { errno }` sees it: set by a call that fails, left alone by one
 * that does not. One for the program: look at it before the next call is awaited.
 */
export let errno = 0;

let last: RoceError | undefined;

/** The error behind `errno`: its `message` names the attribute at fault and what would have been taken. */
export function lastError(): RoceError | undefined {
  return last;
}

/** `EINVAL: invalid argument`, for a number as `errno` has it (strerror(3)). */
export function strerror(number: number): string {
  const [name, text] = getSystemErrorMap().get(-number) ?? ['', `unknown error ${number}`];
  return name ? `${name}: ${text}` : text;
}

/** Notes the error and returns its number. What is no RoceError is a bug of somebody's, and is thrown. */
export function failed(error: unknown): number {
  if (!(error instanceof RoceError)) throw error;
  last = error;
  errno = constants.errno[error.errno as keyof typeof constants.errno];
  return errno;
}

/** A verb that returns a pointer: what it makes, or null and `errno`. */
export async function pointer<T>(make: () => T | Promise<T>): Promise<T | null> {
  try {
    return await make();
  } catch (error) {
    failed(error);
    return null;
  }
}

/** A verb that returns 0 or the error's number. */
export async function status(act: () => unknown): Promise<number> {
  try {
    await act();
    return 0;
  } catch (error) {
    return failed(error);
  }
}

/** The same, done before it returns. */
export function statusNow(act: () => void): number {
  try {
    act();
    return 0;
  } catch (error) {
    return failed(error);
  }
}

/** A verb that returns 0, or −1 and `errno`. */
export async function minusOne(act: () => unknown): Promise<0 | -1> {
  return (await status(act)) === 0 ? 0 : -1;
}
