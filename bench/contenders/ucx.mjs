/** `ucx_perftest` of UCX over its TCP transport: its tagged messages for SEND, its puts for WRITE, its gets for READ. */
import { missingProgram, play } from './client-server.mjs';

const COMMAND = 'ucx_perftest';
/** No shared memory, though both sides are on one machine. */
const env = { UCX_TLS: 'tcp,self', UCX_NET_DEVICES: 'lo' };
const TESTS = { SEND: 'tag_bw', WRITE: 'ucp_put_bw', READ: 'ucp_get' };
const MIB = 1 << 20;

/** The last line of its table: iterations; percentile, mean and overall latency; mean and overall MiB/s; and messages/s. */
async function test(name, { size, count, more = [] }) {
  const warmUp = Math.ceil(count / 4);
  const args = ['-t', name, '-s', size, '-n', count, '-w', warmUp, '-f', '-v', ...more];
  const out = await play({
    command: COMMAND,
    env,
    server: (port) => ['-p', port],
    client: (port) => ['-p', port, '127.0.0.1', ...args],
  });
  const [, latency, , , , mebibytes, , messages] = out.trim().split('\n').at(-1).split(',').map(Number);
  return { latency, mebibytes, messages };
}

export const ucx = {
  name: 'UCX over TCP',
  missing: () => missingProgram(COMMAND, 'ucx-utils'),
  async stream({ operation, size, bytes, batch }) {
    const count = Math.ceil(bytes / size);
    const more = batch === undefined ? [] : ['-O', batch];
    const { mebibytes, messages } = await test(TESTS[operation], { size, count, more });
    return { gbps: mebibytes * MIB * 8e-9, messagesPerSecond: messages };
  },
  async pingpong({ size, count }) {
    // One percentile a run; it counts one way.
    const at = async (rank) => 2 * (await test('tag_lat', { size, count, more: ['-R', rank] })).latency;
    return { p50: await at(50), p99: await at(99), p999: await at(99.9) };
  },
};
