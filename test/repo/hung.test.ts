/** The report on programs that do not end (test/tiers/hung.ts). */
import { spawn } from 'node:child_process';
import { expect, onTestFinished, test } from 'vitest';
import { threadsHere, threadsOf } from '../tiers/hung.ts';

/** The report's line of a program that runs for as long as the test. */
async function lineOf(program: string, args: readonly string[], wanted: RegExp): Promise<void> {
  const child = spawn(program, args, { stdio: 'ignore' });
  onTestFinished(() => void child.kill('SIGKILL'));
  const line = async () => (await threadsHere()).find((text) => text.startsWith(`${child.pid} `)) ?? 'none';
  await expect.poll(line).toMatch(wanted);
}

test('a program that computes: it runs, and its time grows', async () => {
  const computes = /^\d+ node: R, (\d+\.\d\d), then (?!\1)\d+\.\d\d s of processor time/;
  await lineOf(process.execPath, ['-e', 'for (;;);'], computes);
});

test('a program that waits: where', async () => {
  await lineOf(
    'tail',
    ['-f', '/dev/null'],
    /^\d+ tail: S, 0\.0\d, then 0\.0\d s of processor time, waits in \w+$/,
  );
});

test('a thread is told with its process; one that never ran is not, nor are tools', () => {
  const looks = [
    '7 7 S 120 ep_poll node',
    '7 8 R 400 0 node',
    '7 9 S 0 futex_wait_queue V8 Worker',
    '20 20 S 1 do_wait sh',
    '30 30 S 5 pipe_read ib write (bw)',
    '31 31 S 5',
    '7 7 S 121 ep_poll node',
    '7 8 R 499 0 node',
  ];
  expect(threadsOf(looks.join('\n'))).toEqual([
    '7 node: S, 1.20, then 1.21 s of processor time, waits in ep_poll',
    '7/8 node: R, 4.00, then 4.99 s of processor time, in no wait',
    '30 ib write (bw): S, 0.05 s of processor time, waits in pipe_read',
  ]);
});
