/**
 * perftest's programs as the distribution has them, through `roce run`, each with a device of its own at an address of the loopback;
 * and `roce perf`, which is the same measurement on an engine inline. A program and its device share a processor. In rows of the kind `loop`
 * (bench/loop/loop.c) they do not: there is one of each.
 */
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { isListening } from '@node-roce/device';
import { pinned } from '../pinning.mjs';

const ROCE = fileURLToPath(new URL('../../packages/cli/bin/roce.js', import.meta.url));
const LIBRARY = fileURLToPath(new URL('../../native/ibverbs/build/libibverbs.so.1', import.meta.url));
const LOOP_SOURCE = fileURLToPath(new URL('../loop/loop.c', import.meta.url));
const LOOP = fileURLToPath(new URL('../build/loop', import.meta.url));
const ADDRESSES = ['127.0.0.2', '127.0.0.3'];
const START_MS = 15_000;
const TIMEOUT = 60_000;
let port = 15_300;

/** A command of roce on the processor of a side. */
const roce = (side, ...args) => pinned(side, process.execPath, [ROCE, ...args]);

async function until(what, isThere) {
  for (let left = START_MS / 20; !(await isThere()); left--) {
    if (left <= 0) throw new Error(`${what} did not start`);
    await sleep(20);
  }
}

/** Whether a process listens at this TCP port. It is not connected to: perftest's server takes one connection alone. */
const listens = (tcp) =>
  spawnSync('ss', ['-Hltn', `sport = :${tcp}`], { encoding: 'utf8' }).stdout.includes(`:${tcp}`);

async function end(child) {
  child.kill();
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
}

/** Runs a server and a client; resolves with what the client printed. */
async function play([serverCommand, serverArgs], [clientCommand, clientArgs], tcp) {
  const server = spawn(serverCommand, serverArgs, { stdio: 'ignore' });
  try {
    await until(`the server of ${serverArgs.join(' ')}`, () => listens(tcp));
    const { stdout } = await promisify(execFile)(clientCommand, clientArgs, { timeout: TIMEOUT });
    return stdout;
  } finally {
    await end(server);
  }
}

/** So many devices, each on the processor of its side, and their sockets. */
async function withDevices(count, body) {
  const folder = mkdtempSync(join(tmpdir(), 'roce-bench-'));
  const addresses = ADDRESSES.slice(0, count);
  const sockets = addresses.map((address) => join(folder, address));
  const devices = addresses.map((address, side) => {
    const [command, args] = roce(side, 'device', '--bind', address, '--socket', sockets[side]);
    return spawn(command, args, { stdio: 'ignore' });
  });
  try {
    for (const socket of sockets) await until(`the device at ${socket}`, () => isListening(socket));
    return await body(sockets);
  } finally {
    await Promise.all(devices.map(end));
    rmSync(folder, { recursive: true });
  }
}

/** Two devices, and a function that plays a program of perftest between them and returns the numbers of its last row. */
const onDevices = (body) =>
  withDevices(2, (sockets) =>
    body(async (program, args) => {
      port = 15_300 + ((port + 1) % 100);
      const all = [program, '-F', '-x', '0', '-p', `${port}`, ...args];
      const [server, client] = [1, 0].map((side) => roce(side, 'run', '--socket', sockets[side], ...all));
      client[1].push('127.0.0.1');
      return lastRow(await play(server, client, port));
    }),
  );

/** Compiles bench/loop/loop.c; returns what is wrong, or ''. */
function buildLoop() {
  mkdirSync(dirname(LOOP), { recursive: true });
  const compiler = process.env.CC ?? 'cc';
  const { status, stderr, error } = spawnSync(compiler, ['-O2', '-o', LOOP, LOOP_SOURCE, '-libverbs'], {
    encoding: 'utf8',
  });
  if (error) return `no compiler: ${error.code}`;
  return status === 0 ? '' : `${compiler}: ${stderr.trim().split('\n')[0]}`;
}

/** The numbers of a table's last row. */
function lastRow(output) {
  const rows = output.split('\n').filter((line) => /^ \d+ +\d+ /.test(line));
  if (rows.length === 0) throw new Error(`no figures in ${JSON.stringify(output.slice(-200))}`);
  return rows.at(-1).trim().split(/\s+/).map(Number);
}

/** perftest prints half of the time there and back: typical is the median. */
const roundTrip = ([, , , , typical, , , p99]) => ({ p50: 2 * typical, p99: 2 * p99 });

const missingLibrary = () =>
  existsSync(LIBRARY) ? undefined : 'the library is not built (npm run build:native)';

export const programs = {
  name: 'perftest by roce run',
  missing() {
    if (spawnSync('ib_send_lat', ['--version']).error) return 'perftest is not installed';
    if (spawnSync('ss', ['-V']).error) return 'ss is not installed (iproute2)';
    return missingLibrary();
  },
  stream: ({ operation, size, mtu, bytes }) =>
    onDevices(async (run) => {
      const count = Math.ceil(bytes / size);
      const args = ['-s', `${size}`, '-m', `${mtu}`, '--report_gbits', '-N', '-n'];
      const program = `ib_${operation.toLowerCase()}_bw`;
      await run(program, [...args, `${Math.max(200, count >> 2)}`]);
      // #bytes, #iterations, BW peak, BW average, MsgRate (Mpps)
      const [, , , gbps, rate] = await run(program, [...args, `${Math.max(200, count)}`]);
      return { gbps, messagesPerSecond: rate * 1e6 };
    }),
  pingpong: ({ operation, size, count }) =>
    onDevices(async (run) => {
      const args = ['-s', `${size}`, '-n'];
      const program = `ib_${operation.toLowerCase()}_lat`;
      await run(program, [...args, `${count >> 2}`]);
      return roundTrip(await run(program, [...args, `${count}`]));
    }),
};

/** A C program of two queue pairs, on the processor that its device leaves free. */
export const loopProgram = {
  name: 'C by roce run',
  missing: () => missingLibrary() ?? (buildLoop() || undefined),
  loop: ({ count }) =>
    withDevices(1, async ([socket]) => {
      const [command, args] = roce(1, 'run', '--socket', socket, LOOP, `${count}`);
      const { stdout } = await promisify(execFile)(command, args, { timeout: TIMEOUT });
      return JSON.parse(stdout);
    }),
};

/** Both sides inline, the dialogue and the loop of perftest. */
export const perf = {
  name: 'roce perf',
  missing: () => (spawnSync('ss', ['-V']).error ? 'ss is not installed (iproute2)' : undefined),
  async stream({ operation, size, mtu, bytes }) {
    const args = [
      '-s',
      `${size}`,
      '-m',
      `${mtu}`,
      '--report_gbits',
      '-N',
      '-n',
      `${Math.ceil(bytes / size)}`,
    ];
    const [, , , gbps, rate] = await inline(operation, 'bw', args);
    return { gbps, messagesPerSecond: rate * 1e6 };
  },
  pingpong: async ({ operation, size, count }) =>
    roundTrip(await inline(operation, 'lat', ['-s', `${size}`, '-n', `${count}`])),
};

async function inline(operation, measure, args) {
  port = 15_300 + ((port + 1) % 100);
  const all = ['perf', operation.toLowerCase(), measure];
  const rest = ['-p', `${port}`, ...args];
  const server = roce(1, ...all, '--bind', ADDRESSES[1], ...rest);
  const client = roce(0, ...all, ADDRESSES[1], '--bind', ADDRESSES[0], ...rest);
  return lastRow(await play(server, client, port));
}
