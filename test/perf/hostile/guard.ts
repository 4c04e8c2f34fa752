/** Conditions of every hostile test: nothing is left behind, no error is lost, and calls end in time with an error of ours. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Device, RoceError } from '@node-roce/verbs-api';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { type Holdings, watchHoldings } from './holdings.ts';
import { BOUND, dialed, type Outcome, served } from './sides.ts';

/**
 * Registers hooks that check after each test of a file that the process holds no more than before, and that no rejection was
 * unhandled. Returns how many domains and completion queues there are on an open device.
 */
export function guard(): { heldOn: (device: Device) => number } {
  let holdings: ReturnType<typeof watchHoldings>;
  let before: Holdings;
  const strays: unknown[] = [];
  const stray = (error: unknown) => strays.push(error);

  beforeAll(async () => {
    holdings = watchHoldings();
    process.on('unhandledRejection', stray);
    // The first device opens what the process keeps: the addon, its threads.
    await served(async (port) => (await dialed(port)).destroy());
    // It closes in later turns: when nothing has changed for some, it has.
    for (let last = ''; last !== JSON.stringify(before); before = holdings.now()) {
      last = JSON.stringify(before);
      for (let turn = 0; turn < 10; turn++) await sleep(10);
    }
  });

  afterAll(() => {
    process.off('unhandledRejection', stray);
    holdings.stop();
  });

  // Sockets and devices close in a later turn.
  afterEach(async () => {
    await expect.poll(() => holdings.now()).toEqual(before);
    expect(strays).toEqual([]);
  });
  return { heldOn: (device) => holdings.on(device) };
}

/** The call ended in time, with an error that has a code of ours and names no fault of this program. */
export function expectError({ error, ms }: Outcome, code = /^ERR_ROCE_/, where = ''): void {
  expect(error, where).toBeInstanceOf(RoceError);
  expect(error!.code, where).toMatch(code);
  expect(error!.message.length, where).toBeGreaterThan(10);
  expect(ms, where).toBeLessThan(BOUND);
}

export const EXCHANGE = /^ERR_ROCE_EXCHANGE$/;
export const LEFT = /^ERR_ROCE_(EXCHANGE|TIMEOUT)$/;
