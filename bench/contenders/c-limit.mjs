/** The limit: bench/c-limit/c-limit.cc, built here with the machine's compiler. */
import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const OUT = at('../build');
const PROGRAM = `${OUT}/c-limit`;
const SOURCES = [
  at('../c-limit/c-limit.cc'),
  ...['crc', 'crc_pclmul', 'crc_vpclmul', 'icrc', 'address'].map((name) => at(`../../native/src/${name}.cc`)),
];
const PORT = '14990';

let reason;
function build() {
  if (reason !== undefined) return reason;
  mkdirSync(OUT, { recursive: true });
  const compiler = process.env.CXX ?? 'c++';
  const { status, stderr, error } = spawnSync(compiler, ['-std=c++17', '-O3', '-o', PROGRAM, ...SOURCES], {
    encoding: 'utf8',
  });
  reason = error
    ? `no compiler: ${error.code}`
    : status === 0
      ? ''
      : `${compiler}: ${stderr.trim().split('\n')[0]}`;
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
