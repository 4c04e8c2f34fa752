/**
 * `fi_pingpong` of libfabric over `udp;ofi_rxd`: its reliable datagrams over UDP sockets. It knows one
 * measurement only: one message there and back, many times; its figure is the mean.
 */
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { pinned } from '../pinning.mjs';

const ARGS = ['-p', 'udp;ofi_rxd', '-d', 'lo', '-e', 'rdm'];
const TIMEOUT = 30_000;
let port = 15_200;

async function play(size, count) {
  port = 15_200 + ((port + 1) % 100);
  const sized = [...ARGS, '-I', String(count), '-S', String(size)];
  const server = spawn(...pinned(1, 'fi_pingpong', [...sized, '-B', String(port)]), { stdio: 'ignore' });
  try {
    await sleep(300);
    const [command, args] = pinned(0, 'fi_pingpong', [...sized, '-P', String(port), '127.0.0.1']);
    const { stdout } = await promisify(execFile)(command, args, { timeout: TIMEOUT });
    // bytes, #sent, #ack, total, time, MB/sec, usec/xfer, Mxfers/sec
    const fields = stdout.trim().split('\n').at(-1).split(/\s+/);
    return { megabytes: Number(fields[5]), microseconds: Number(fields[6]) };
  } finally {
    server.kill();
    if (server.exitCode === null && server.signalCode === null) await once(server, 'exit');
  }
}

export const fabric = {
  name: 'fi_pingpong udp;ofi_rxd',
  missing: () =>
    spawnSync('fi_pingpong', ['-h']).error ? 'fi_pingpong is not installed (libfabric-bin)' : undefined,
  async stream({ size, bytes }) {
    const { megabytes } = await play(size, Math.max(10, Math.min(2000, Math.ceil(bytes / size / 8))));
    return { gbps: megabytes * 0.008, messagesPerSecond: (megabytes * 1e6) / size };
  },
  async pingpong({ size, count }) {
    const { microseconds } = await play(size, count);
    return { p50: 2 * microseconds, mean: true };
  },
};
