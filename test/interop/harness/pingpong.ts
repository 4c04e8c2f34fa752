/** `roce pingpong` here and an unmodified ibv_rc_pingpong in the guest: both run, both have to be content. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { GID_INDEX, type Guest } from './guest.ts';

const ROCE = fileURLToPath(new URL('../../../packages/cli/bin/roce.js', import.meta.url));

export interface PingPongOptions {
  version: 4 | 6;
  /** Ours. */
  role: 'server' | 'client';
  mtu: number;
  /** Bytes of a message. */
  size: number;
  iters: number;
  events?: boolean;
  /** Seconds that our side waits for a message. */
  patience?: number;
}

/** What our side reports. */
export interface PingPongReport {
  bytes: number;
  retransmittedPackets: number;
  icrcErrors: number;
  wrongPages?: number[];
}

/** A TCP port of its own for each exchange. */
let port = 18600;

function roce(args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [ROCE, 'pingpong', '--json', ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (data) => {
    stdout += data;
  });
  child.stderr.on('data', (data) => {
    stderr += data;
  });
  return new Promise((resolve) => {
    child.on('exit', (code) => resolve({ code, stdout, stderr }));
  });
}

/** One run, the contents checked by both programs. Fails unless both end well, with all bytes exchanged. */
export async function playPingPong(
  guest: Guest,
  { version, role, mtu, size, iters, events = false, patience = 30 }: PingPongOptions,
): Promise<{ report: PingPongReport; stderr: string }> {
  const { address } = guest;
  const host = version === 4 ? address.hostIp4 : address.hostIp6;
  port++;
  const tool = [
    `ibv_rc_pingpong -d rxe0 -g ${GID_INDEX[version]} -p ${port} -n ${iters} -s ${size} -m ${mtu} -c`,
    events ? '-e' : '',
  ].join(' ');
  const figures = { port, size, iters, mtu, timeout: patience };
  const ours = Object.entries(figures).flatMap(([name, value]) => [`--${name}`, `${value}`]);
  ours.push('--check', '--bind', host);
  if (events) ours.push('--events');
  const timeout = patience * 2000;

  let theirs: Awaited<ReturnType<Guest['exec']>>;
  let mine: Awaited<ReturnType<typeof roce>>;
  if (role === 'server') {
    const node = roce(ours);
    // The tool tries to connect once; it is asked again until we listen.
    theirs = await guest.exec(`for i in 1 2 3 4 5 6 7 8; do ${tool} ${host} && break; sleep 0.3; done`, {
      timeout,
    });
    mine = await node;
  } else {
    // As a server, the tool listens on IPv4 only; the GID it tells is of the version asked for.
    const server = guest.exec(tool, { timeout });
    await guest.must(`for i in $(seq 50); do ss -ltn | grep -q :${port} && exit 0; sleep 0.1; done; exit 1`);
    mine = await roce([...ours, address.ip4]);
    theirs = await server;
  }
  expect(mine.code, mine.stderr).toBe(0);
  expect(theirs.code, theirs.stdout + theirs.stderr).toBe(0);
  expect(theirs.stdout).not.toContain('invalid data');
  expect(theirs.stdout).toContain(`${2 * size * iters} bytes`);
  const report = JSON.parse(mine.stdout) as PingPongReport;
  expect(report.bytes).toBe(2 * size * iters);
  if (role === 'server') expect(report.wrongPages).toEqual([]);
  return { report, stderr: mine.stderr };
}
