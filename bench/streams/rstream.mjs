/**
 * rstream of rdmacm-utils, a C program: sockets of librdmacm on devices of `roce run`, or TCP (`-T s`). It sends all bytes one way, then as many
 * the other way. Its processor time is that of both programs and their devices; that of a run with one transfer, which has all of starting and
 * ending, is subtracted.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { isListening } from '@node-roce/device';
import { pinned } from '../pinning.mjs';

const ROCE = fileURLToPath(new URL('../../packages/cli/bin/roce.js', import.meta.url));
const [SERVER, CLIENT] = ['127.0.61.3', '127.0.61.4'];
const MIB = 2 ** 20;
const TRANSFER = 65_536;
const TRIES = 5;
/** Of /proc: ticks in a second, and the fields of a process's own time and of its ended children's, behind its name. */
const TICKS = 100;
const [OWN_CPU, CHILDREN_CPU] = [11, 13];
let port = 15_400;

export const hasRstream = spawnSync('which', ['rstream']).status === 0;

/** Seconds of processor in a row of /proc/PID/stat, from a field on: two of them. */
function cpuOf(pid, field) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ');
  return (Number(fields[field]) + Number(fields[field + 1])) / TICKS;
}

/** Of children that have ended, and of devices. */
const cpu = (devices) =>
  devices.reduce((sum, { pid }) => sum + cpuOf(pid, OWN_CPU), cpuOf('self', CHILDREN_CPU));

async function ended(child) {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
}

/** A device for each side, on the side's processor. */
async function withDevices(body) {
  const folder = mkdtempSync(join(tmpdir(), 'roce-rstream-'));
  const sockets = [CLIENT, SERVER].map((address) => join(folder, address));
  const devices = [CLIENT, SERVER].map((address, side) => {
    const args = [ROCE, 'device', '--bind', address, '--socket', sockets[side]];
    const [command, list] = pinned(side, process.execPath, args);
    return spawn(command, list, { stdio: 'ignore' });
  });
  try {
    for (const socket of sockets) while (!(await isListening(socket))) await sleep(20);
    return await body(devices, sockets);
  } finally {
    for (const device of devices) device.kill();
    await Promise.all(devices.map(ended));
    rmSync(folder, { recursive: true });
  }
}

function start(side, sockets, args) {
  const line = ['rstream', '-p', `${port}`, '-T', 'b', ...(sockets ? [] : ['-T', 's']), ...args];
  const run = sockets ? [process.execPath, ROCE, 'run', '--socket', sockets[side], ...line] : line;
  const [command, list] = pinned(side, run[0], run.slice(1));
  const child = spawn(command, list, { stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.on('data', (data) => {
    output += data;
  });
  return { child, done: once(child, 'close').then(([code]) => ({ code, output })) };
}

/** So many transfers each way; seconds of processor, and the seconds that the client prints. */
async function play(devices, sockets, transfers) {
  const args = ['-S', `${TRANSFER}`, '-C', `${transfers}`, '-I', '1'];
  // A client that comes before its server listens is refused, and both start again.
  for (let attempt = 1; attempt <= TRIES; attempt++) {
    port++;
    const before = cpu(devices);
    const server = start(1, sockets, ['-b', SERVER, ...args]);
    await sleep(2000 * attempt);
    const { code, output } = await start(0, sockets, ['-s', SERVER, ...args]).done;
    if (code !== 0) server.child.kill();
    await server.done;
    if (code === 0) return { cpu: cpu(devices) - before, seconds: Number(/ ([\d.]+)s /.exec(output)[1]) };
  }
  throw new Error(`rstream failed ${TRIES} times`);
}

/** Transfers that have so many MiB. */
export const transfersOf = (mebibytes) => (mebibytes * MIB) / TRANSFER;

/** MB/s, and MB for each second of processor. */
export async function rateOfRstream(isTcp, mebibytes) {
  const transfers = transfersOf(mebibytes);
  const bytes = 2 * transfers * TRANSFER;
  const measure = async (devices, sockets) => {
    const empty = await play(devices, sockets, 1);
    const full = await play(devices, sockets, transfers);
    return { rate: bytes / 1e6 / full.seconds, perCpu: bytes / 1e6 / (full.cpu - empty.cpu) };
  };
  return isTcp ? measure([], undefined) : withDevices(measure);
}
