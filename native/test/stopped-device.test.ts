/** A device that is stopped amid an access, by job control or a debugger, takes no program for one whose memory does not answer. */
// @module-tag slow
// @module-tag gate
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';

/** Fetches for ever, and names another process as the one whose memory it is. */
const FETCH = `
import { openSync, readFileSync } from 'node:fs';
import { ProcessMemory } from '@node-roce/dgram-native';
const bytes = new Uint8Array(1 << 20);
const memory = new ProcessMemory(openSync('/proc/self/mem', 'r+'), Number(process.argv[1]));
const maps = [...readFileSync('/proc/self/maps', 'latin1').matchAll(/^(\\w+)-(\\w+) r/gm)];
const [, from] = maps.find(([, from, to]) => parseInt(to, 16) - parseInt(from, 16) >= bytes.length);
for (let i = 0; ; i++) {
  if (!memory.pull(bytes, 0, bytes.length, parseInt(from, 16))) throw new Error('nothing was fetched');
  if (i === 100) console.log('fetches');
}
`;

const started: ChildProcess[] = [];
afterEach(() => {
  for (const child of started) child.kill('SIGKILL');
});

test('a program goes on when the device was stopped for longer than its memory may take', async () => {
  const program = spawn('sleep', ['600'], { stdio: 'ignore' });
  started.push(program);
  const device = spawn(process.execPath, ['--input-type=module', '-e', FETCH, '--', `${program.pid}`], {
    cwd: import.meta.dirname,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  started.push(device);
  await once(device.stdout!, 'data');
  for (let i = 0; i < 2; i++) {
    device.kill('SIGSTOP');
    await sleep(5600);
    device.kill('SIGCONT');
    // A look of the watcher.
    await sleep(700);
    expect(program.signalCode).toBeNull();
  }
  expect(device.exitCode).toBeNull();
}, 120_000);
