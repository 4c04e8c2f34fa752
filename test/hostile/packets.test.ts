/**
 * Two engines with connections of every kind under traffic (RC with and without an SRQ and through memory windows, UC, UD,
 * groups; READs and atomics under way), and hostile packets before each real one: forged, wrong in one thing each, and
 * mutated. Nothing may come of them: everything is delivered once and byte for byte, no connection ends, no byte next to
 * a region changes, each drop is counted under its reason.
 *
 *   ROCE_HOSTILE_PACKETS=1000000 npx vitest run test/hostile/packets
 */
import { setImmediate } from 'node:timers/promises';
import { createRandom, type EngineDevice } from '@node-roce/sim';
import type { KeepEarly } from '@node-roce/transport';
import { expect, test } from 'vitest';
import { NETWORKS, type NetworkKind } from '../sim/run.ts';
import { GUARD_BYTES, runServices, type ServicesOutcome, type ServicesRun } from '../sim/run-services.ts';
import { FORGERIES } from './forgeries.ts';
import { markerIn } from './marker.ts';
import { Quarters } from './memory.ts';
import { recordedPackets } from './mutations.ts';
import { type Attack, forging, mutating, Siege } from './siege.ts';

const PACKETS = Number(process.env.ROCE_HOSTILE_PACKETS ?? 4_000);
/** Hostile packets for each real one. */
const EACH = 6;

type Look = (siege: Siege, network: NetworkKind) => void;
type Delivered = ServicesOutcome['delivered'];

/** One run of all services under siege from both sides. */
function run(
  seed: number,
  keepEarly: KeepEarly,
  attack: Attack,
  look: Look,
): { packets: number; runArrivals: number; delivered: Delivered } {
  const kind = seed % 2 === 1 ? 'clean' : NETWORKS[(seed / 2) % NETWORKS.length];
  const sieges: Siege[] = [];
  const prepare: ServicesRun['prepare'] = (devices, network) => {
    for (const [i, device] of devices.entries()) {
      const random = createRandom(seed * 2 + i);
      sieges.push(new Siege(device as EngineDevice, { network, random, each: EACH, attack }));
    }
  };
  const devices = { a: 'engine', b: 'engine', recovery: { keepEarly, selective: true } } as const;
  const { fault, delivered } = runServices({ seed, ...devices, network: kind, prepare });
  const what = `seed ${seed}, ${kind}`;
  expect(fault, what).toBeUndefined();
  for (const siege of sieges) {
    const { arena } = siege.device;
    const whole = new Uint8Array(arena.buffer);
    const untouched = (from: number) => whole.subarray(from, from + GUARD_BYTES).every((byte) => byte === 0);
    expect(untouched(0) && untouched(GUARD_BYTES + arena.length), what).toBe(true);
    expect(markerIn(whole), what).toBe(-1);
    look(siege, kind);
  }
  const sum = (of: (siege: Siege) => number) => of(sieges[0]) + of(sieges[1]);
  return {
    packets: sum((siege) => siege.packets),
    runArrivals: sum(({ device }) => device.runArrivals),
    delivered,
  };
}

/** Runs seed after seed until so many hostile packets have been received. */
async function besiege(keepEarly: KeepEarly, attack: Attack, look: Look): Promise<void> {
  const quarters = new Quarters(PACKETS);
  const delivered: Delivered = { RC: 0, UC: 0, UD: 0 };
  let packets = 0;
  let runArrivals = 0;
  for (let seed = 1; packets < PACKETS; seed++) {
    const outcome = run(seed, keepEarly, attack, look);
    packets += outcome.packets;
    runArrivals += outcome.runArrivals;
    for (const service of ['RC', 'UC', 'UD'] as const) delivered[service] += outcome.delivered[service];
    await quarters.at(packets);
    // In a long run the runner wants to hear from this thread.
    await setImmediate();
  }
  expect(Math.min(delivered.RC, delivered.UC, delivered.UD)).toBeGreaterThan(PACKETS / 2000);
  expect(quarters.growth).toBeLessThan(2 * 2 ** 20);
  // Every second seed is without runs.
  if (process.env.ROCE_SIM_RUNS === 'off') expect(runArrivals).toBe(0);
  else expect(runArrivals).toBeGreaterThan(PACKETS / 1000);
  if (process.env.ROCE_HOSTILE_PACKETS) {
    console.log(
      `${packets} hostile packets; delivered ${JSON.stringify(delivered)}; ${runArrivals} real packets in runs; bytes held ${quarters.samples}`,
    );
  }
}

const limit = { timeout: 300_000 + PACKETS };

test.each(['off', 'quiet', 'ahead'] as const)(
  'well-formed and forged packets, each wrong in one thing; early ones: %s',
  limit,
  async (keepEarly) => {
    const kinds = new Map<string, number>();
    const names = Object.keys(FORGERIES).filter((name) => keepEarly === 'off' || name !== 'requestAhead');
    await besiege(keepEarly, forging(kinds, names), ({ device, due }, network) => {
      const counters: Record<string, number> = { ...device.adapter.counters() };
      for (const [name, count] of due) {
        // Bad networks damage and repeat packets of their own; engines under DCQCN are sent CNPs.
        const isExact = network === 'clean' && name !== 'staleResponses' && name !== 'cnpReceived';
        if (isExact) expect(counters[name], name).toBe(count);
        else expect(counters[name], name).toBeGreaterThanOrEqual(count);
      }
    });
    for (const name of names) expect(kinds.get(name), name).toBeGreaterThan(PACKETS / 10_000);
    if (process.env.ROCE_HOSTILE_PACKETS) console.log(Object.fromEntries(kinds));
  },
);

test('packets mutated on their way, or by strangers who mend the ICRC', limit, async () => {
  await besiege('quiet', mutating(await recordedPackets()), ({ device, due }) => {
    expect(device.adapter.counters().icrcErrors).toBeGreaterThanOrEqual(due.get('icrcErrors') ?? 0);
  });
});
