/** Connects to the first of several addresses that answers (RFC 8305). */
import { RoceError } from '@node-roce/verbs-api';
import { closedError, RefusedError } from './errors.ts';

/** Connection Attempt Delay (RFC 8305 §5). */
const DELAY_MS = 250;

/** Addresses in the resolver's order, with the IP versions in turns (RFC 8305 §4). */
export function inTurns(addresses: readonly string[]): string[] {
  const isSix = (address: string) => address.includes(':');
  const first = addresses.filter((each) => isSix(each) === isSix(addresses[0]));
  const second = addresses.filter((each) => isSix(each) !== isSix(addresses[0]));
  const turns: string[] = [];
  for (let i = 0; i < Math.max(first.length, second.length); i++)
    turns.push(...first.slice(i, i + 1), ...second.slice(i, i + 1));
  return turns;
}

/**
 * The first attempt that succeeds; the others are given up. An attempt begins 250 ms after the one before, or when that has failed.
 *
 * Rejects with the signal's reason, and where all have failed with a refusal, or an error that has the others' as its cause.
 *
 * @param attempt rejects with the reason of its signal
 * @param discard ends a connection that came too late
 */
export async function firstOf<T>(
  host: string,
  addresses: readonly string[],
  attempt: (address: string, signal: AbortSignal) => Promise<T>,
  discard: (late: T) => void,
  signal: AbortSignal,
): Promise<T> {
  if (addresses.length === 1) return attempt(addresses[0], signal);
  const others = new AbortController();
  const errors: RoceError[] = [];
  let timer: NodeJS.Timeout | undefined;
  const onAbort = () => others.abort(signal.reason);
  signal.throwIfAborted();
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await new Promise<T>((resolve, reject) => {
      let next = 0;
      let isOver = false;
      const end = (): boolean => {
        const was = isOver;
        isOver = true;
        return was;
      };
      const begin = (): void => {
        clearTimeout(timer);
        if (isOver || next === addresses.length) return;
        const address = addresses[next++];
        if (next < addresses.length) timer = setTimeout(begin, DELAY_MS);
        attempt(address, others.signal).then(
          (made) => {
            if (end()) discard(made);
            else resolve(made);
          },
          (error: RoceError) => {
            errors.push(error);
            if (signal.aborted) {
              end();
              reject(signal.reason);
            } else if (errors.length === addresses.length) {
              end();
              reject(ofAll(host, errors));
            } else begin();
          },
        );
      };
      begin();
    });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
    others.abort(closedError('another address has answered'));
  }
}

/** A program that refuses has answered; otherwise each address has a reason of its own. */
function ofAll(host: string, errors: readonly RoceError[]): RoceError {
  const refused = errors.find((error) => error instanceof RefusedError);
  if (refused) return refused;
  const [{ code, errno }] = errors;
  return new RoceError(
    code,
    `no address of ${host} answers: ${errors.map(({ message }) => message).join('; ')}`,
    {
      errno,
      attribute: 'host',
      cause: new AggregateError(errors),
    },
  );
}
