/** The clock that links share with the run loop. */
import { expect, test, vi } from 'vitest';
import { timeOrigin } from './native-link.ts';

test('a thread that loses the processor while it reads the clocks gets the same time from both', () => {
  let now = 5;
  const hrtime = vi.spyOn(process, 'hrtime').mockImplementation(() => [7, now * 1e6]);
  let reads = 0;
  const reading = vi.spyOn(performance, 'now').mockImplementation(() => {
    // 100 ms each, but for once.
    if (++reads !== 3) now += 100;
    return now;
  });
  try {
    expect(timeOrigin()).toBe(7e6);
  } finally {
    hrtime.mockRestore();
    reading.mockRestore();
  }
});
