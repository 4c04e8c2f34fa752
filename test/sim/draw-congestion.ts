/** How the engines of a seeded run control congestion: both controllers come up, mixed, on ways that mark packets. */
import type { EndpointKind, WireOptions } from '@node-roce/sim';
import type { Congestion } from '@node-roce/transport';
import { createRandom } from '@node-roce/wire';

/** Sets the numbers of congestion control apart from those of the run itself: what a seed did before it still does. */
const OWN_SEED = 0x3d0c_9c17;

/** A queue that marks while anything waits, and more the more waits. */
const MARKING: WireOptions = { rate: 5e9, markAt: [0, 5_000, 1] };

/**
 * Draws the congestion control of each device: of the engines, about half obey DCQCN. Floors are high enough that a packet takes less
 * than any ACK timeout of the runs.
 */
export function drawCongestion(seed: number, kinds: readonly EndpointKind[]): Partial<Congestion>[] {
  return kinds.map((kind, i) => {
    const random = createRandom(seed * 131 + i + OWN_SEED);
    if (kind === 'model' || random.chance(0.5)) return {};
    return {
      controller: 'dcqcn',
      minTimeBetweenCnps: random.pick([4, 50]),
      rpgTimeReset: random.pick([55, 300]),
      rpgMinRate: random.pick([200, 1_000]),
      rpgMaxRate: random.pick([2_000, 10_000]),
    };
  });
}

/** Lets a way mark packets, where a device of the run obeys DCQCN; a way that has a rate already keeps it. */
export function withMarks(way: WireOptions, devices: readonly Partial<Congestion>[]): WireOptions {
  return devices.some(({ controller }) => controller === 'dcqcn') ? { ...MARKING, ...way } : way;
}
