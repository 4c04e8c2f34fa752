/** `roce run`: a program of libibverbs with node-roce's library in place of the system's. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import {
  type DeviceStatus,
  defaultInterface,
  type HeldDevice,
  hasGainedCapabilities,
  holdDevice,
  isListening,
  libraryPath,
  type MemoryWay,
  networkNamespace,
  prepareFolder,
  programEnvironment,
  socketPath,
  whyNot,
} from '@node-roce/device';
import type { Terminal } from '../terminal.ts';

interface Given {
  bind?: string;
  socket?: string;
  probes: boolean;
  memory: MemoryWay;
}

/** Signals that are passed on to the program. */
const PASSED = ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGCONT'] as const;
/** How long a device may take to answer, in seconds: on a busy machine, the start of Node alone takes many. */
const ANSWER_SECONDS = 120;
/** How long a device that was started here stays without programs. */
const IDLE_SECONDS = 10;

/** As the shell has it: no such program, or one that cannot be run. */
const CANNOT_RUN = 126;
const NOT_FOUND = 127;

function fault(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}

/** Starts a device in the background, and waits until `hold` has one that answers. Ends the device that has not by the limit: it may never. */
async function startDevice(
  { bind: address, probes }: Given,
  path: string,
  hold: () => Promise<HeldDevice | undefined>,
  limit: AbortSignal,
): Promise<HeldDevice> {
  const log = `${path}.log`;
  const out = openSync(log, 'w', 0o600);
  const script = fileURLToPath(new URL('../../bin/roce.js', import.meta.url));
  const place = address === undefined ? [] : ['--bind', address];
  const args = [script, 'device', ...place, '--socket', path, '--idle', `${IDLE_SECONDS}`];
  if (!probes) args.push('--no-probes');
  // In a session of its own: Ctrl-C is meant for the program.
  const device = spawn(process.execPath, args, { detached: true, stdio: ['ignore', out, out], cwd: '/' });
  closeSync(out);
  device.unref();
  let end: string | undefined;
  device.once('error', ({ message }) => (end = message));
  device.once('exit', (code, signal) => (end = signal ? `it was ended by ${signal}` : `exit code ${code}`));
  for (;;) {
    const held = await hold().catch((error) => {
      if (limit.aborted) device.kill();
      throw error;
    });
    if (held !== undefined) return held;
    if (end === undefined || (await answersSoon(path))) {
      // Another one may have been faster: then ours has ended, and that one answers.
      await sleep(20);
      continue;
    }
    const reason = readFileSync(log, 'utf8').trimEnd() || end;
    throw fault(
      'ERR_ROCE_NO_DEVICE',
      `${address ?? defaultInterface()}: no device could be started\n${reason}`,
    );
  }
}

async function answersSoon(path: string): Promise<boolean> {
  await sleep(500);
  return isListening(path);
}

/** A device of another network namespace has other interfaces, whatever its address is. */
function checkNetwork(path: string, { network }: DeviceStatus): void {
  const own = `${networkNamespace()}`;
  if (network === own || network === '0' || own === '0') return;
  throw fault(
    'ERR_ROCE_NO_DEVICE',
    `${path}: the device is in another network namespace (net:[${network}]; here it is net:[${own}]): start one here, without --socket`,
  );
}

/** The device at the socket, or one that is started for it. */
async function findDevice(given: Given, path: string, terminal: Terminal): Promise<HeldDevice> {
  const limit = AbortSignal.timeout(ANSWER_SECONDS * 1000);
  const signal = AbortSignal.any([limit, terminal.signal]);
  const tell = () =>
    terminal.message(`roce run: waiting for an answer at ${path}: the program there is silent so far`);
  const hold = () => holdDevice(path, signal, tell);
  try {
    const held = await hold();
    if (held !== undefined) return held;
    if (given.socket === undefined) return await startDevice(given, path, hold, limit);
  } catch (error) {
    if (error !== limit.reason) throw error;
    const reason = (await isListening(path))
      ? 'the program that listens there is stopped, or is no device'
      : `${path}.log may have the reason`;
    throw fault('ERR_ROCE_NO_DEVICE', `${path}: no device answered within ${ANSWER_SECONDS} s: ${reason}`);
  }
  throw fault(
    'ERR_ROCE_NO_DEVICE',
    `${path}: no device answers there; start one with roce device --socket ${path}`,
  );
}

export async function run(args: readonly string[], given: Given, terminal: Terminal): Promise<number> {
  const [program, ...rest] = args;
  const refusal = whyNot(program, terminal.env);
  if (refusal) {
    terminal.message(`roce run: ${program}: ${refusal.reason}`);
    return refusal.isMissing ? NOT_FOUND : CANNOT_RUN;
  }
  const library = libraryPath();
  const { bind: address } = given;
  const path = given.socket ?? socketPath(address ?? defaultInterface());
  // First: what answers in a folder that another user prepared is that user's.
  if (given.socket === undefined) prepareFolder(dirname(path));
  // It keeps the device while the program starts.
  const held = await findDevice(given, path, terminal);
  if (given.socket !== undefined) checkNetwork(path, held.status);
  const child = spawn(program, rest, {
    stdio: 'inherit',
    env: programEnvironment(library, path, terminal.env, given.memory),
  });
  if (child.pid !== undefined && hasGainedCapabilities(child.pid))
    terminal.message(
      `roce run: ${program}: its file has capabilities (setcap): the system ignores LD_LIBRARY_PATH for it, so it finds no device. Run a copy of the file`,
    );
  // Ctrl-C and Ctrl-\ typed at a terminal reach the program without us.
  const typed = process.stdin.isTTY === true;
  const handlers = PASSED.map((signal) => {
    const pass = () => {
      if (!(typed && (signal === 'SIGINT' || signal === 'SIGQUIT'))) child.kill(signal);
    };
    // The second Ctrl-C does not end this command while the program goes on.
    const others = process.listeners(signal);
    process.on(signal, pass);
    for (const other of others) process.removeListener(signal, other);
    return [signal, pass, others] as const;
  });
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
    return code ?? 128 + (signal === null ? 0 : constants.signals[signal]);
  } finally {
    held.socket.destroy();
    for (const [signal, pass, others] of handlers) {
      for (const other of others) process.on(signal, other);
      process.removeListener(signal, pass);
    }
  }
}
