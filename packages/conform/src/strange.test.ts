/** Devices that answer anything: no rule throws because of what came, and none waits without end. */
import { createRandom } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { BrokenDevice } from '../testing/broken-device.ts';
import { STRANGE } from '../testing/strange.ts';
import { RULES } from './rules/all.ts';
import { play } from './run.ts';
import { type AdapterOptions, adapterBench, MODEL_OPTIONS } from './virtual/bench.ts';
import { acceptFrame } from './virtual/line.ts';
import { SERVICE_ID } from './virtual/listening-model.ts';

/** ROCE_CONFORM_STRANGE has another number of seeds. */
const SEEDS = Number(process.env.ROCE_CONFORM_STRANGE ?? 1);
const CASES = Object.entries(STRANGE).flatMap(([name, make]) =>
  Array.from({ length: SEEDS }, (_, seed) => ({ name, make, seed })),
);

/** ms of virtual time: rules with --slow wait for minutes at most. */
const LONGEST = 300_000;
/** What a rule may say of a device that is not one: that it floods, or that its service went. */
const REASONS = /does not stop sending|^the service at the connection manager is gone$/;

async function holds({ make, seed }: (typeof CASES)[number]): Promise<void> {
  const failures: string[] = [];
  for (const rule of RULES) {
    const { unit } = createRandom(seed);
    const strange = make((n) => Math.floor(unit() * n));
    const device = (options: AdapterOptions) =>
      new BrokenDevice({ ...options, ...MODEL_OPTIONS }, { seenBy: [], ...strange });
    const bench = adapterBench(device, { accept: acceptFrame, serviceId: SERVICE_ID });
    const { verdict, why, time } = await play(rule, bench);
    if (time > LONGEST) failures.push(`${rule.id}: took ${Math.round(time)} ms`);
    if (verdict === 'broken' && !REASONS.test(why.at(-1) ?? '')) failures.push(`${rule.id}: ${why.at(-1)}`);
  }
  expect(failures).toEqual([]);
}

const [first, ...others] = CASES;
test(`${first.name}, seed ${first.seed}`, { tags: ['slow', 'gate'] }, () => holds(first));
test.each(others)('$name, seed $seed', { tags: ['slow'] }, holds);
