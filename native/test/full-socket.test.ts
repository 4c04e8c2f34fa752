/**
 * Wake-ups of a port whose sockets are full, over slow links in a network namespace of the test. Needs root and iproute2;
 * with ROCE_ROOT_TESTS set, as in .ci/run, it fails without them.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';
import { Namespace } from '../../test/sockets/port/namespace.ts';
import { DEADLINE_MS } from './support.ts';

const NAME = `roce-full-${process.pid}`;
const namespace = Namespace.make(NAME, (why) => {
  if (process.env.ROCE_ROOT_TESTS) throw new Error(why);
  console.warn(`full sockets are not tested: no network namespace: ${why}`);
});
afterAll(() => namespace?.[Symbol.dispose]());

if (namespace) {
  // roce0 takes 20 Mbit/s: the default send buffer drains in some 40 ms. slow0 takes 2 Mbit/s.
  namespace.ip('link add slow0 type veth peer name slow1');
  for (const end of ['slow0', 'slow1']) namespace.ip(`link set ${end} up`);
  namespace.ip('address add 10.78.0.1/24 dev slow0');
  namespace.ip('neighbour add 10.77.0.2 lladdr 02:00:00:00:00:09 dev roce0');
  namespace.ip('neighbour add 10.78.0.2 lladdr 02:00:00:00:00:09 dev slow0');
  namespace.tc('qdisc add dev roce0 root tbf rate 20mbit burst 10kb limit 10mb');
  namespace.tc('qdisc add dev slow0 root tbf rate 2mbit burst 10kb limit 10mb');
}

async function run(scenario: string) {
  const program = join(import.meta.dirname, 'full-socket.mjs');
  const command = ['netns', 'exec', NAME, 'prlimit', '--nofile=256', process.execPath, program, scenario];
  const { stdout } = await promisify(execFile)('ip', command, { timeout: DEADLINE_MS });
  return JSON.parse(stdout);
}

describe.skipIf(!namespace)('a full socket', () => {
  test('wakes when there is room, each time, and not afterwards', async () => {
    const { rounds, WRITABLE, taken, ...counts } = await run('full');
    expect(counts).toEqual({ sendBlocked: 3, txPackets: taken, sendErrors: 0 });
    expect(taken).toBeGreaterThan(100);
    for (const { events, wakes, cpuMs } of rounds) {
      expect(events).toBe(WRITABLE);
      expect(wakes).toBe(0);
      expect(cpuMs).toBeLessThan(100); // of 300 ms
    }
  });

  test('wakes without a free descriptor', async () => {
    const { rounds, sendBlocked, WRITABLE } = await run('no descriptors');
    expect(sendBlocked).toBe(2);
    for (const { events, wakes } of rounds) expect({ events, wakes }).toEqual({ events: WRITABLE, wakes: 0 });
  });

  test('wakes for the socket that ended the last batch, not for an earlier one that has room', async () => {
    const { events, waited, wakes, WRITABLE } = await run('another socket');
    expect(events).toBe(WRITABLE);
    expect(wakes).toBe(1);
    // At 2 Mbit/s half of the default send buffer, 100 kB, takes 400 ms.
    expect(waited).toBeGreaterThan(50);
  });

  test('that is removed before the wake-up is asked for: wakes soon', async () => {
    expect(await run('removed')).toMatchObject({ first: 2, wakes: 0 });
  });

  test('that is removed while it is waited for: wakes soon, and a socket with its number is not taken for it', async () => {
    expect(await run('removed while waited for')).toMatchObject({ first: 2, events: 2, wakes: 0 });
  });
});
