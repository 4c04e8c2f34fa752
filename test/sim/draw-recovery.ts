/** How the engines of a seeded run recover from losses: all ways come up, mixed. */
import type { EndpointKind } from '@node-roce/sim';
import type { Recovery } from '@node-roce/transport';
import { createRandom } from '@node-roce/wire';

/** Sets the numbers of recovery apart from those of the run itself: what a seed did before it still does. */
const OWN_SEED = 0x7ec0_4e5d;

/**
 * Draws the recovery of one engine: responders that discard, keep quietly and keep ahead, probes and selective retransmission switched
 * off now and then. To acknowledge ahead is for requesters that know what to do then: all that are in such a run.
 *
 * @param seed of the run
 * @param number of the device in the run: each has its own
 * @param kinds of all devices
 */
export function drawRecovery(seed: number, number: number, kinds: readonly EndpointKind[]): Recovery {
  const mayBeAhead = !kinds.includes('model') && createRandom(seed * 127 + OWN_SEED).chance(0.5);
  const random = createRandom(seed * 127 + number + OWN_SEED);
  return {
    keepEarly: random.pick(mayBeAhead ? ['off', 'quiet', 'ahead'] : ['off', 'quiet']),
    probes: random.chance(0.8),
    selective: mayBeAhead || random.chance(0.8),
  };
}
