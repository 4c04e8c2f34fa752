/** Contenders that are programs of other projects: a server on one processor, a client on the other that prints the figures. */
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { pinned } from '../pinning.mjs';

const TIMEOUT = 30_000;
/** Until the server listens, ms: none of them reports it. */
const STARTING = 300;
const FIRST_PORT = 15_200;
let started = process.pid;

/** Why a program can't be measured; undefined if it can. */
export function missingProgram(command, packageName) {
  return spawnSync(command, ['-h']).error ? `${command} is not installed (${packageName})` : undefined;
}

/**
 * Resolves with what the client prints.
 *
 * @param server gives the server's arguments for a port
 * @param client gives the client's
 */
export async function play({ command, server, client, env = {} }) {
  const port = FIRST_PORT + (started++ % 500);
  const options = { env: { ...process.env, ...env } };
  const serving = spawn(...pinned(1, command, server(port).map(String)), { ...options, stdio: 'ignore' });
  try {
    await sleep(STARTING);
    const [program, args] = pinned(0, command, client(port).map(String));
    const { stdout } = await promisify(execFile)(program, args, { ...options, timeout: TIMEOUT });
    return stdout;
  } finally {
    serving.kill();
    if (serving.exitCode === null && serving.signalCode === null) await once(serving, 'exit');
  }
}
