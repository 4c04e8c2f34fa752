/**
 * The result of a call, as C has it: a code that is returned, or NULL or −1 and `errno`. `lastError` returns
 * the RoceError behind it, which has the details.
 */
import { constants } from 'node:os';
import { getSystemErrorMap } from 'node:util';
import { RoceError } from '@node-roce/verbs-api';

/**
 * Number of the last error (errno(3)), as `import { errno }` sees it: set by a call that fails, left alone by one
 * that does not. One for the program: look at it before the next call is awaited. A program with several calls under way
 * asks `errorOf`.
 */
export let errno = 0;

let last: RoceError | undefined;

/** The error behind `errno`: its `message` names the attribute at fault and what would have been taken. */
export function lastError(): RoceError | undefined {
  return last;
}

const errors = new WeakMap<Promise<unknown>, RoceError>();

/**
 * The error of one call, whatever other calls failed since. In C, each thread has an `errno` of its own; here, calls of one
 * thread overlap.
 *
 * @param call what the verb returned, settled
 * @returns undefined where the call succeeded, or is under way
 */
export function errorOf(call: Promise<unknown>): RoceError | undefined {
  return errors.get(call);
}

/** Runs `act`. An error becomes `errno`, the call's own, and the result `failure`. */
function attempt<T, F>(act: () => T | Promise<T>, failure: (errno: number) => F): Promise<T | F> {
  const call: Promise<T | F> = (async () => act())().catch((error) => {
    const number = failed(error);
    if (last) errors.set(call, last);
    return failure(number);
  });
  return call;
}

/** `EINVAL: invalid argument`, for a number as `errno` has it (strerror(3)). */
export function strerror(number: number): string {
  if (number === 0) return 'Success';
  // One number has two names; the documents of verbs use this one.
  if (number === constants.errno.EOPNOTSUPP) return 'EOPNOTSUPP: operation not supported';
  const [name, text] = getSystemErrorMap().get(-number) ?? ['', `unknown error ${number}`];
  return name ? `${name}: ${text}` : text;
}

/** Notes the error and returns its number. Anything but a RoceError is a bug, and is thrown. */
export function failed(error: unknown): number {
  if (!(error instanceof RoceError)) throw error;
  last = inCNames(error);
  errno = constants.errno[error.errno as keyof typeof constants.errno];
  return errno;
}

/** `destQpNum` → `dest_qp_num`, but not the name of a method, which stands behind a dot. */
const snakeCase = (text: string): string =>
  text.replaceAll(/(?<![.\w])[a-z]+(?:[A-Z][a-z]+)+\b/g, (name) =>
    name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
  );

/** As C writes it: members of structs, and states by the names of their constants. */
const toCNames = (text: string): string =>
  snakeCase(text.replaceAll(/(?<![.\w])(RESET|INIT|RTR|RTS|SQD|SQE|ERR)\b/g, 'IBV_QPS_$1')).replaceAll(
    /\b[a-z_]+(\.[a-zA-Z]+)+\b/g,
    (path) => path.split('.').map(snakeCase).join('.'),
  );

/** The same error in the words of the program that made it: attributes are members of structs in C. */
export function inCNames(error: RoceError): RoceError {
  const { code, errno, attribute, expected, cause } = error;
  const suffix = expected === undefined ? '' : ` (expected ${expected})`;
  const message = error.message.slice(0, error.message.length - suffix.length);
  return new RoceError(code, toCNames(message), {
    errno,
    ...(attribute === undefined ? {} : { attribute: toCNames(attribute) }),
    ...(expected === undefined ? {} : { expected: toCNames(expected) }),
    ...(cause === undefined ? {} : { cause }),
  });
}

/** A verb that returns a pointer: what it makes, or null and `errno`. */
export function pointer<T>(make: () => T | Promise<T>): Promise<T | null> {
  return attempt(make, () => null);
}

/** A verb that returns 0, or else `failure` and `errno`; without `failure`, the error's number. */
export function status<F extends number = number>(act: () => unknown, failure?: F): Promise<0 | F> {
  return attempt(
    async () => {
      await act();
      return 0 as const;
    },
    (number) => failure ?? (number as F),
  );
}

/** A verb that returns 0 or the error's number, done before it returns. */
export function statusNow(act: () => void): number {
  try {
    act();
    return 0;
  } catch (error) {
    return failed(error);
  }
}

/** A verb that returns 0, or −1 and `errno`. */
export function minusOne(act: () => unknown): Promise<0 | -1> {
  return status(act, -1);
}
