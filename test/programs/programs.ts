/** Programs of libibverbs, as the distribution has them, on two devices of this machine. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { DeviceServer, libraryPath, programEnvironment } from '@node-roce/device';

export const roce = fileURLToPath(new URL('../../packages/cli/bin/roce.js', import.meta.url));

export const isThere = (program: string) => spawnSync('which', [program]).status === 0;

/** Why the programs cannot be run here; undefined where they can. */
export function whyMissing(): string | undefined {
  try {
    libraryPath();
  } catch (error) {
    return (error as Error).message;
  }
  const missing = ['ibv_rc_pingpong', 'ib_write_bw'].filter((program) => !isThere(program));
  return missing.length === 0 ? undefined : `not installed: ${missing.join(', ')}`;
}

/** A program that ended. */
export interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
  output: string;
}

/** A program that runs: its process, and what it is when it has ended. */
export interface Running {
  child: ChildProcess;
  ended: Promise<Ended>;
}

/** Two devices, in this process, and programs on them. */
export class Devices {
  readonly #folder: string;
  readonly servers: readonly DeviceServer[];
  /** Faults of the devices themselves, as they logged them. */
  readonly faults: readonly string[];

  private constructor(folder: string, servers: readonly DeviceServer[], faults: readonly string[]) {
    this.#folder = folder;
    this.servers = servers;
    this.faults = faults;
  }

  static async open(...addresses: string[]): Promise<Devices> {
    const folder = mkdtempSync(join(tmpdir(), 'roce-programs-'));
    const servers: DeviceServer[] = [];
    const faults: string[] = [];
    const log = (line: string) => {
      if (line.includes('fault here')) faults.push(line);
    };
    for (const address of addresses)
      servers.push(await DeviceServer.listen({ address, path: join(folder, `${address}.sock`), log }));
    return new Devices(folder, servers, faults);
  }

  /** Starts a program at a device. It is killed after `timeout` ms. */
  start(device: number, program: string, args: readonly string[], timeout = 240_000): Running {
    // The library that is preloaded here is for this process: a sanitizer's runtime (scripts/test-sanitized.mjs).
    const own = { ...process.env, LD_PRELOAD: undefined };
    const env = programEnvironment(libraryPath(), this.servers[device].path, own);
    const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'], timeout });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (data) => {
        output += data;
      });
    const ended = once(child, 'close').then(([code, signal]) => ({ code, signal, output }) as Ended);
    return { child, ended };
  }

  /** Plays a program with itself: the server at the first device, the client at the second. */
  async pair(
    program: string,
    args: readonly string[],
    port: number,
  ): Promise<[server: Ended, client: Ended]> {
    const all = ['-p', `${port}`, ...args];
    const server = this.start(0, program, all);
    let hasEnded = false;
    void server.ended.then(() => {
      hasEnded = true;
    });
    while (!hasEnded && !isListening(port)) await sleep(20);
    const client = this.start(1, program, [...all, '127.0.0.1']);
    return Promise.all([server.ended, client.ended]);
  }

  async close(): Promise<void> {
    await Promise.all(this.servers.map((server) => server.close()));
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** Resolves once some process listens at this TCP port. */
export async function listening(port: number): Promise<void> {
  while (!isListening(port)) await sleep(20);
}

/** Whether some process listens at this TCP port; without a connection, which a server would take for its client. */
function isListening(port: number): boolean {
  const { stdout } = spawnSync('cat', ['/proc/net/tcp', '/proc/net/tcp6'], { encoding: 'utf8' });
  const hex = port.toString(16).toUpperCase().padStart(4, '0');
  return stdout.split('\n').some((line) => new RegExp(`^\\s*\\d+: [0-9A-F]+:${hex} \\S+ 0A `).test(line));
}
