/** A program of libibverbs here, over `roce run`, and the same one in the guest on rxe: both run, both have to be content. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { DeviceServer } from '@node-roce/device';
import { expect, onTestFinished } from 'vitest';
import { meet } from '../../programs/meet.ts';
import { GID_INDEX, type Guest } from './guest.ts';
import { ROCE } from './roce.ts';

/** A TCP port of its own for each run. */
let port = 19_600;

/**
 * Runs a program with its options on both sides, to the end of both.
 *
 * @param role ours
 * @param socket of the device here
 * @returns what ours printed, and the guest's
 */
export async function playProgram(
  guest: Guest,
  role: 'server' | 'client',
  socket: string,
  line: string,
): Promise<[ours: string, theirs: string]> {
  const { hostIp4, ip4 } = guest.address;
  port++;
  const [program, ...options] = line.split(' ');
  const gid = program.startsWith('ibv_') ? '-g' : '-x';
  const common = ['-p', `${port}`, ...options];
  const theirLine = [program, '-d', 'rxe0', gid, GID_INDEX[4], ...common].join(' ');
  const start = (...peer: string[]) => {
    const args = ['run', '--socket', socket, '--', program, gid, '0', ...common, ...peer];
    const child = spawn(process.execPath, [ROCE, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    onTestFinished(() => void child.kill());
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (data) => {
        output += data;
      });
    return once(child, 'close').then(([code]) => ({ code: code as number | null, output }));
  };
  const listens = `for i in $(seq 100); do ss -ltn | grep -q :${port} && exit 0; sleep 0.1; done; exit 1`;
  let mine: ReturnType<typeof start>;
  let theirs: ReturnType<Guest['exec']>;
  if (role === 'server') {
    mine = start();
    // The ping-pongs try to connect once: again until ours listens.
    const again = `for i in $(seq 20); do ${theirLine} ${hostIp4} && exit 0; sleep 0.5; done; exit 1`;
    theirs = guest.exec(again, { timeout: 60_000 });
  } else {
    theirs = guest.exec(theirLine, { timeout: 60_000 });
    await guest.must(listens);
    mine = start(ip4);
  }
  const [here, there] = [await mine, await theirs];
  expect(here.code, here.output).toBe(0);
  expect(there.code, there.stdout + there.stderr).toBe(0);
  return [here.output, there.stdout];
}

/** A program that runs, here or in the guest. */
export interface Playing {
  readonly ended: Promise<{ code: number | null; output: string }>;
  kill(): void;
}

/** Starts a program here, on a device. */
export function startHere(device: DeviceServer, ...command: string[]): Playing {
  const args = [ROCE, 'run', '--socket', device.path, '--', ...command];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  onTestFinished(() => void child.kill());
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => {
      output += data;
    });
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, output }));
  return { ended, kill: () => void child.kill() };
}

/** Starts a command of the guest. It is killed after `timeout` ms. */
export function startThere(guest: Guest, line: string, timeout = 60_000): Playing {
  const aborter = new AbortController();
  const ended = guest.exec(line, { timeout, signal: aborter.signal });
  onTestFinished(() => aborter.abort());
  return {
    ended: ended.then(({ code, stdout, stderr }) => ({ code, output: stdout + stderr })),
    kill: () => aborter.abort(),
  };
}

/** Resolves once a program listens at the device. */
export const listensHere = (device: DeviceServer) =>
  expect.poll(() => device.ids.listening, { timeout: 30_000 }).toBeGreaterThan(0);

/**
 * A program of librdmacm on both sides, whose clients find their servers by address: `serverLine` and `clientLine` without the address.
 */
export async function playConnected(
  guest: Guest,
  role: 'server' | 'client',
  device: DeviceServer,
  serverLine: string,
  clientLine: string,
): Promise<void> {
  const { hostIp4, ip4 } = guest.address;
  const [{ code, output }] = await meet(
    async () => {
      if (role === 'client') return startThere(guest, serverLine);
      const server = startHere(device, ...serverLine.split(' '));
      await listensHere(device);
      return server;
    },
    () =>
      role === 'server'
        ? startThere(guest, `${clientLine} ${hostIp4}`)
        : startHere(device, ...`${clientLine} ${ip4}`.split(' ')),
  );
  expect(code, output).toBe(0);
}
