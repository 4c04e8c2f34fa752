/**
 * A peer with connections of its own, of every service, that knows all PSNs and keys and sends whatever it likes. With
 * it, in another protection domain of the same device, runs a connection of somebody else's, which must not notice.
 *
 *   ROCE_HOSTILE_PACKETS=1000000 npx vitest run test/hostile/insider
 */
import { setImmediate } from 'node:timers/promises';
import { ARENA_BYTES, createRandom, EngineEndpoint, MixedWorkload, Pair } from '@node-roce/sim';
import { expect, test } from 'vitest';
import { Insider } from './insider.ts';
import { markerIn } from './marker.ts';
import { Quarters } from './memory.ts';

const PACKETS = Number(process.env.ROCE_HOSTILE_PACKETS ?? 5_000);
const GUARD = 4096;
const BYTES = 65_536;
/** The insider's packets for each turn in which the other connection gets something. */
const EACH = 16;

/** Events that have to have happened to the device for the run to mean something. */
const WAYS = [
  'completedReceives',
  'sentInvalidRequest',
  'sentAccessErr',
  'sentRnrErr',
  'receivedInvalidRequest',
  'receivedAccessErr',
  'receivedSeqErr',
  'receivedRnrErr',
  'impliedNakSeqErr',
  'staleResponses',
  'qkeyViolations',
] as const;

const guarded = (bytes: number) => new Uint8Array(new ArrayBuffer(bytes + 2 * GUARD), GUARD, bytes);

/** Whether the bytes around an arena are as they were made. */
function intact(arena: Uint8Array): boolean {
  const whole = new Uint8Array(arena.buffer);
  const zero = (from: number) => whole.subarray(from, from + GUARD).every((byte) => byte === 0);
  return zero(0) && zero(GUARD + arena.length);
}

test('an insider ends its own connections and writes to its own region, and that is all', {
  timeout: 300_000 + PACKETS,
}, async () => {
  let device!: EngineEndpoint;
  const pair = new Pair({
    a: (options) => {
      device = new EngineEndpoint({ ...options, guardBytes: GUARD });
      return device;
    },
    b: 'engine',
    seed: 5,
    arenaBytes: ARENA_BYTES,
    pathMtu: 256,
  });
  pair.network.record = false;
  const random = createRandom(11);
  const workload = new MixedWorkload(pair.a, pair.b, Math.ceil(PACKETS / 200), createRandom(7));

  const [arena, vault] = [guarded(BYTES), guarded(BYTES)];
  const domain = device.createDomain(arena);
  const { rkey, base } = device.createDomain(vault).arena;
  for (let i = 0; i < BYTES; i++) vault[i] = random.next();
  const treasure = vault.slice();
  const { info } = device;
  const forbidden = [{ rkey, base }, info];
  const insider = new Insider({ device, domain, bytes: BYTES, forbidden, random });

  const quarters = new Quarters(PACKETS);
  const receive = device.receive.bind(device);
  let packets = 0;
  const attack = () => {
    const { now } = pair.network;
    receive(
      Array.from({ length: EACH }, () => insider.next()),
      now,
    );
    packets += EACH;
    insider.upkeep();
  };
  const transmit = device.transmit.bind(device);
  device.transmit = (now) => {
    const sent = transmit(now);
    insider.hear(sent);
    return sent;
  };
  device.receive = (real, now) => {
    attack();
    receive(real, now);
  };
  let done = false;
  while (!done || packets < PACKETS) {
    let turns = 0;
    done = pair.run(() => workload.step() || ++turns > 200, pair.network.now + 1e6) && turns <= 200;
    if (done) {
      attack();
      device.transmit(pair.network.now);
    }
    await quarters.at(packets);
    // In a long run the runner wants to hear from this thread.
    await setImmediate();
  }

  expect(workload.failure).toBeUndefined();
  expect(device.state).toBe('RTS');
  for (const memory of [arena, vault, device.arena]) expect(intact(memory)).toBe(true);
  expect(vault).toEqual(treasure);
  expect(markerIn(device.arena)).toBe(-1);
  // It did get in where it may: else this would show nothing. And its mistakes were reported to it.
  expect(markerIn(arena)).toBeGreaterThanOrEqual(0);
  expect(insider.ended).toBeGreaterThan(PACKETS / 100);
  const counters = device.adapter.counters();
  // In both of its parts, as one who answers and as one who asks.
  for (const name of WAYS) {
    expect(counters[name], name).toBeGreaterThan(0);
  }
  expect(quarters.growth).toBeLessThan(2 * 2 ** 20);
  if (process.env.ROCE_HOSTILE_PACKETS) {
    const { adapter } = device;
    console.log(
      `${packets} packets ended ${insider.ended} connections; bytes held ${quarters.samples}`,
      adapter.counters(),
    );
  }
});
