/**
 * Mutated dialogues: recordings of the real programs, each changed in one to three places.
 *
 *   ROCE_PERF_DIALOGUES=1000000 npx vitest run test/perf/hostile/mutated
 *   ROCE_PERF_DIALOGUES=100000 ROCE_PERF_FIRST=100000 …    # the second tenth of it
 */
import type { PerfOptions } from '@node-roce/perf';
import { createRandom } from '@node-roce/sim';
import { type Device, openDevice, RoceError } from '@node-roce/verbs-api';
import { describe, expect, test } from 'vitest';
import { guard } from './guard.ts';
import { DIALOGUE_OF, MUTATIONS, recorded } from './recorded.ts';
import { BOUND, called, dialed, IDLE, type Outcome, oursAt, say, served } from './sides.ts';

const { heldOn } = guard();

const DIALOGUES = Number(process.env.ROCE_PERF_DIALOGUES ?? 300);
const FIRST = Number(process.env.ROCE_PERF_FIRST ?? 0);
/** Dialogues at once. With many, a busy processor keeps them waiting until they time out; with few, they all wait for silent ones. */
const LANES = DIALOGUES > 10_000 ? 48 : 12;
/** One in so many has a device of its own, the others that of their lane: a device takes longer to open than a dialogue to play. */
const OWN_DEVICE = 16;
const names = Object.keys(MUTATIONS);

/** Where a dialogue is played: a device that is open, or the address of one to open. */
interface Place {
  device?: Device;
  index: number;
}

/** Counts of the ends of dialogues: "played", or a code. */
type Ends = Record<string, number>;

/**
 * Plays `count` dialogues from number `first` on, some at once, and counts how they ended.
 *
 * @param one returns the outcome, and the bytes for an error
 */
async function playAll(
  first: number,
  count: number,
  one: (n: number, place: Place) => Promise<{ outcome: Outcome; bytes: Buffer }>,
): Promise<Ends> {
  const ends: Ends = {};
  let next = first;
  const work = async (lane: number) => {
    await using device = await openDevice({ address: oursAt(2 * lane + 1) });
    for (let n = next++; n < first + count; n = next++) {
      const place = n % OWN_DEVICE === 0 ? { index: 2 * lane + 2 } : { index: 2 * lane + 1, device };
      const { outcome, bytes } = await one(n, place);
      const { error, ms } = outcome;
      const repro = () => `dialogue ${n}: ${names[n % names.length]}, ${bytes.toString('hex')}`;
      if (error && !(error instanceof RoceError)) throw new Error(repro(), { cause: error });
      if (ms > BOUND) throw new Error(`${ms} ms: ${repro()}`);
      const end = error?.code ?? 'played';
      ends[end] = (ends[end] ?? 0) + 1;
    }
    expect(heldOn(device)).toBe(0);
  };
  await Promise.all(Array.from({ length: LANES }, (_, lane) => work(lane)));
  return ends;
}

const summary = (what: string, ends: Ends) => `${what}: ${JSON.stringify(ends)}`;

describe('mutated dialogues', { timeout: 300_000 + 20 * DIALOGUES }, () => {
  const results: string[] = [];

  test(`${DIALOGUES} at a server`, async () => {
    const rows: [keyof typeof DIALOGUE_OF, PerfOptions][] = [
      ['6.29-read_lat', IDLE],
      ['6.06-atomic_lat_fa', { verb: 'atomic', measure: 'lat', iters: 5 }],
      ['6.29-write_bw', { verb: 'write', measure: 'bw', size: 64, iters: 5 }],
    ];
    const ends = await playAll(FIRST, DIALOGUES, async (n, place) => {
      const random = createRandom(n + 1);
      const [recording, options] = random.pick(rows);
      const { answers, ...whole } = DIALOGUE_OF[recording];
      let { messages } = whole;
      for (let i = random.between(1, 3); i > 0 && messages.length > 0; i--)
        messages = MUTATIONS[names[n % names.length]](messages, random);
      const resets = random.chance(0.25);
      const attack = async (port: number) =>
        say(await dialed(port), { messages, answers }, undefined, resets);
      return { outcome: await served(attack, options, place), bytes: Buffer.concat(messages) };
    });
    results.push(summary(`${DIALOGUES} at a server`, ends));
    // The run did its work: many were refused for their messages, however busy the machine, and some passed.
    expect(ends.ERR_ROCE_EXCHANGE).toBeGreaterThan(DIALOGUES / 4);
    expect(ends.played).toBeGreaterThan(0);
  });

  test(`${DIALOGUES / 10} at a client`, async () => {
    // Before the last keys: the data would wait for a queue pair that is not there.
    const recording = recorded('6.29-read_lat', 'server').slice(0, -3);
    const ends = await playAll(FIRST / 10, DIALOGUES / 10, async (n, place) => {
      const random = createRandom(n + 1);
      const bytes = Buffer.concat(MUTATIONS[names[n % names.length]](recording, random));
      const attack = (socket: import('node:net').Socket) => socket.end(bytes);
      const outcome = await called(attack, IDLE, { version: '6.29', ...place });
      expect(outcome.error).toBeDefined();
      return { outcome, bytes };
    });
    results.push(summary(`${DIALOGUES / 10} at a client`, ends));
    expect(ends.ERR_ROCE_EXCHANGE).toBeGreaterThan(0);
    if (process.env.ROCE_PERF_DIALOGUES) console.log(`result: ${results.join('; ')}`);
  });
});
