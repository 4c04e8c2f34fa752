/**
 * The rules against the engine in virtual time: the requester asks again early, by probes, at moments that depend on the seed
 * and on the way. Deviations are those of the list.
 */
import { acceptFrame, adapterBench, compare, LISTS, play, RULES } from '@node-roce/conform';
import { EngineDevice } from '@node-roce/sim';
import { expect, test } from 'vitest';

/** µs of the way: a probe leaves before an answer comes, or not. ROCE_CONFORM_DELAYS has another number of them, up to 5 ms. */
const MANY = Number(process.env.ROCE_CONFORM_DELAYS ?? 0);
const DELAYS =
  MANY > 0 ? Array.from({ length: MANY }, (_, i) => 1 + Math.floor((i * 5000) / MANY)) : [1, 700, 1500, 4000];

/** Headers that the kernel's UDP socket hides from the device on a network. */
const OF_THE_KERNEL = ['HDR-11', 'HDR-13'];

test.each(RULES.filter(({ id }) => id !== 'FUZ-01'))('$id $title', async (rule) => {
  for (const [seed, delay] of DELAYS.entries()) {
    const bench = adapterBench(({ gid }) => new EngineDevice({ gid, arenaBytes: 65_536, seed }), {
      name: 'engine',
      accept: acceptFrame,
      delay,
    });
    const [{ verdict, why, ladder }] = compare([await play(rule, bench)], LISTS['node-roce']);
    const fine = OF_THE_KERNEL.includes(rule.id) ? ['mended'] : ['pass', 'known', 'not testable'];
    expect(fine, `${delay} µs: ${verdict}: ${why.join('\n')}\n${ladder}`).toContain(verdict);
  }
});
