/** Guests under User-Mode Linux that do not start as they should, and one that panics later. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { PATIENCE } from '../tiers/patience.mjs';
import { Guest } from './harness/guest.ts';
import { GuestMachine } from './harness/machine.ts';

const KERNEL = process.env.ROCE_GUEST_UM!;
const folder = () => mkdtempSync(join(tmpdir(), 'um-test-'));
let directory: string;
const machines: GuestMachine[] = [];

beforeEach(() => {
  directory = folder();
  vi.stubEnv('ROCE_GUEST_ACCEL', 'um');
});
afterEach(async () => {
  for (const machine of machines.splice(0)) await machine.stop();
  vi.unstubAllEnvs();
  rmSync(directory, { recursive: true });
});

/** Puts a program in the kernel's place. */
function replaceKernel(body: string, interpreter = '/bin/sh'): void {
  const program = join(directory, 'kernel');
  writeFileSync(program, `#!${interpreter}\n${body}\n`);
  chmodSync(program, 0o755);
  vi.stubEnv('ROCE_GUEST_UM', program);
}

async function start(number: number, timeout?: number): Promise<Guest> {
  const machine = await GuestMachine.start({ mtu: 9000, number, timeout });
  machines.push(machine);
  expect(machine.accelerator).toBe('um');
  return new Guest(machine.address);
}

describe('a start that fails', () => {
  test.each([
    {
      what: 'panics',
      body: 'echo "Kernel panic - not syncing: no memory"; exec sleep 600',
      error: /no memory\n.*no memory/,
    },
    { what: 'ends', body: 'echo "no room for me"; exit 3', error: /it ended with 3\n.*no room for me/ },
    {
      what: 'hangs',
      body: 'echo "the last words"; exec sleep 600',
      error: /not ready after 2 s\n.*the last words/,
      timeout: 2000,
    },
    {
      what: 'loses its console',
      body: 'exec > /dev/null 2>&1; exec KERNEL "$@"',
      error: /not ready after 2 s/,
      timeout: 2000,
    },
  ])('$what three times: the error has the end of its console', async ({ body, error, timeout }) => {
    replaceKernel(body.replace('KERNEL', KERNEL));
    const { message } = await start(11, timeout).then(
      () => new Error('it started'),
      (reason: Error) => reason,
    );
    expect(message).toMatch(error);
    expect(message.match(/^um: /gm)).toHaveLength(3);
  });

  test('panics twice: the third start gives the guest', async () => {
    const starts = join(directory, 'starts');
    replaceKernel(
      `echo start >> ${starts}\n[ $(wc -l < ${starts}) -gt 2 ] && exec ${KERNEL} "$@"\necho "Kernel panic - not syncing: not yet"`,
    );
    const guest = await start(12);
    expect(await guest.must('rdma link show')).toContain('state ACTIVE');
  });

  test('is refused ptrace: one start, one sentence', async () => {
    // A filter of system calls, as containers have it: ptrace (101) fails with EPERM, all others go on.
    replaceKernel(
      `
import ctypes, os, struct, sys
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 101), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
filters = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *one) for one in code))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(code), ctypes.addressof(filters)))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execv('${KERNEL}', sys.argv)`,
      '/usr/bin/python3',
    );
    const { message } = await start(13).then(
      () => new Error('it started'),
      (reason: Error) => reason,
    );
    expect(message).toMatch(/this machine refuses ptrace/);
    expect(message.match(/^um: /gm)).toHaveLength(1);
  });
});

test('a kernel that panics takes nothing of the run with it, and is started again', async () => {
  const guest = await start(14);
  machines[0].revive();
  const { code } = await guest.exec('echo c > /proc/sysrq-trigger', { timeout: 1000 });
  expect(code).toBe(-1);
  const state = async () => (await guest.exec('rdma link show', { timeout: 1000 })).stdout;
  await expect.poll(state, { timeout: 60_000 * PATIENCE, interval: 500 }).toContain('state ACTIVE');
});
