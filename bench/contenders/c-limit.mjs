/** The limit: bench/c-limit/c-limit.cc, built here with the machine's compiler. */
import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const OUT = at('../build');
const PROGRAM = `${OUT}/c-limit`;
const NATIVE = ['crc', 'crc_pclmul', 'crc_vpclmul', 'icrc', 'address'];
const PORT = '14990';

/**
 * Builds a program of the directory `c-limit` of `root`, with that root's `native/src`.
 * @returns the reason why it can't be built, or nothing
 */
export function compile(name, output, root = at('../..')) {
  mkdirSync(OUT, { recursive: true });
  const sources = [`bench/c-limit/${name}.cc`, ...NATIVE.map((file) => `native/src/${file}.cc`)];
  const compiler = process.env.CXX ?? 'c++';
  const args = ['-std=c++17', '-O3', '-o', output, ...sources.map((file) => join(root, file))];
  const { status, stderr, error } = spawnSync(compiler, args, { encoding: 'utf8' });
  if (error) return `no compiler: ${error.code}`;
  return status === 0 ? '' : `${compiler}: ${stderr.trim().split('\n')[0]}`;
}

let reason;
function build() {
  reason ??= compile('c-limit', PROGRAM);
  return reason;
}

/** @param cable makes bench/cable.mjs's cable when first asked for; absent: over the loopback */
const over = (name, cable) => ({
  name,
  missing: () => build() || cable?.missing(),

  async stream({ mtu, size, offload = true, bytes }) {
    const payload = Math.min(size, mtu);
    const packets = Math.ceil(bytes / payload);
    const args = [
      'throughput',
      payload,
      offload ? 1 : 0,
      packets,
      PORT,
      ...(cable?.at(mtu).namespaces ?? []),
    ];
    const { stdout } = await run(PROGRAM, args.map(String));
    const { gbps, packetsPerSecond, cpuNsPerPacket } = JSON.parse(stdout);
    const perMessage = Math.max(1, Math.ceil(size / mtu));
    return {
      gbps,
      messagesPerSecond: packetsPerSecond / perMessage,
      cpuNsPerPacket,
      cpuSecondsPerGigabyte: cpuNsPerPacket / payload,
    };
  },

  async pingpong({ size, count, events, mtu = 4096 }) {
    const args = ['pingpong', size, events ? 0 : 1, count, PORT, ...(cable?.at(mtu).namespaces ?? [])];
    return JSON.parse((await run(PROGRAM, args.map(String))).stdout);
  },
});

export const cLimit = over('C limit');
export const cLimitOver = (cable) => over('C limit', cable);
