/** Calls that fail because no peer answers, and how long that takes on a clock that the test moves. */
import { expect } from 'vitest';

/** The error of whoever asks for 10.0.0.2:7 with the default `connectTimeout`. */
export const NO_ANSWER = {
  code: 'ERR_ROCE_CM_UNREACHABLE',
  errno: 'ETIMEDOUT',
  attribute: 'connectTimeout',
  message: expect.stringContaining('no answer from 10.0.0.2:7 within 10000 ms'),
};

/**
 * Waits until a call has failed: not before `least` ms, and before `most`.
 * @returns its error
 */
export async function failsWithin(
  least: number,
  most: number,
  call: () => Promise<unknown>,
): Promise<unknown> {
  const since = performance.now();
  const error = await call().then(
    () => expect.unreachable('the call has not failed'),
    (reason: unknown) => reason,
  );
  const took = performance.now() - since;
  expect(took).toBeGreaterThanOrEqual(least);
  expect(took).toBeLessThan(most);
  return error;
}
