/**
 * Two devices on real sockets, and processes that send arbitrary datagrams to their ports: from an address of their own and
 * under the peer's. The traffic between the two is checked byte for byte meanwhile.
 *
 *   ROCE_HOSTILE_PACKETS=1000000 npx vitest run test/hostile/link
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { createRandom } from '@node-roce/sim';
import { expect, test } from 'vitest';
import { markerIn } from './marker.ts';
import { Quarters } from './memory.ts';
import { recordedPackets } from './mutations.ts';
import { Raid } from './raid.ts';
import { Site } from './site.ts';

const PACKETS = Number(process.env.ROCE_HOSTILE_PACKETS ?? 4_000);
/** Datagrams at once: no more than the smallest receive buffer holds. */
const BURST = 16;
/** Bursts between two looks at the PSNs. */
const BURSTS = 16;
/** Under a flood of another process: rounds of traffic, and packets of the flood, at least. */
const [ROUNDS, FLOOD] = [20, 10_000];
const limit = { timeout: 300_000 + PACKETS };

// A port and addresses of our own: suites that run at the same time do not meet.
const port = 50_000 + (process.pid % 10_000);
const host = (n: number) => `127.${(process.pid >> 8) & 0x7f}.${process.pid & 0xff}.${n}`;

/** Expected counts at the end: every check has had its packets. */
const REASONS = [
  'icrcErrors',
  'malformed',
  'unknownQp',
  'badPkey',
  'wrongSource',
  'cnpReceived',
  'duplicateRequest',
  'outOfSeqRequest',
  'staleResponses',
  'qkeyViolations',
] as const;

test.each([
  ['native sockets, engine in the thread', { engine: 'inline' }],
  ['native sockets, engine in a worker', { engine: 'worker' }],
  ['node:dgram', { link: 'dgram' }],
] as const)('datagrams to the port of a device: %s', limit, async (_name, device) => {
  const addresses = [host(31), host(32)] as const;
  await using site = await Site.open(addresses, { port, ...device });
  const options = {
    site,
    addresses,
    stranger: host(33),
    port,
    random: createRandom(3),
    recorded: await recordedPackets(),
  };
  const raid = await Raid.begin(options);
  const quarters = new Quarters(PACKETS);
  let over = false;
  let failure: unknown;
  const traffic = (async () => {
    while (!over) await site.round();
  })().catch((error: unknown) => {
    failure = error;
  });
  try {
    while (raid.sent < PACKETS) {
      await raid.aim();
      for (let i = 0; i < BURSTS; i++) {
        await raid.send(BURST);
        await setImmediate();
      }
      await quarters.at(raid.sent);
      if (failure) throw failure;
    }
  } finally {
    over = true;
    raid.end();
  }
  await traffic;
  if (failure) throw failure;
  await site.round();

  for (const pair of Object.values(site.pairs)) for (const qp of pair) expect(qp.state).toBe('RTS');
  expect(site.firstDifference()).toBe(-1);
  for (const { memory } of [site.a, site.b]) expect(markerIn(memory)).toBe(-1);
  const { delivered } = site;
  expect(Math.min(delivered.rc, delivered.uc, delivered.ud)).toBeGreaterThan(PACKETS / 2000);
  for (const { device } of [site.a, site.b]) {
    const counters = await device.counters();
    for (const reason of REASONS) expect(counters[reason], reason).toBeGreaterThan(0);
  }
  expect(quarters.growth).toBeLessThan(4 * 2 ** 20);
  if (process.env.ROCE_HOSTILE_PACKETS) {
    const counters = await site.b.device.counters();
    console.log(
      `${raid.sent} datagrams; delivered ${JSON.stringify(delivered)}; bytes held ${quarters.samples}`,
      counters,
    );
  }
});

test('a flood from another process slows the traffic down and does not end it', async () => {
  const addresses = [host(36), host(37)] as const;
  await using site = await Site.open(addresses, { port });
  const script = join(import.meta.dirname, 'flood.mjs');
  const flood = spawn(process.execPath, [script, host(38), addresses[1], String(port)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const exit = once(flood, 'exit');
  const flooded = async () => (await site.b.device.counters()).unknownQp;
  for (let i = 0; i < ROUNDS; i++) await site.round();
  try {
    await once(flood.stdout, 'data');
    for (let i = 0; i < ROUNDS || (await flooded()) < FLOOD; i++) await site.round();
  } finally {
    flood.stdin.end();
    await exit;
  }
  for (const pair of Object.values(site.pairs)) for (const qp of pair) expect(qp.state).toBe('RTS');
  expect(site.firstDifference()).toBe(-1);
});
