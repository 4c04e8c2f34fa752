/** Frames that are RoCE, or may be, and could not be parsed. */
import { snapAdvice } from '../../read/snap-length.ts';
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { type Capture, type Cause, ofCapture, Rank, rule } from './rule.ts';

function find({ summary }: Capture): FindingOf<'damaged-packets'>[] {
  const damaged = Object.entries(summary.damaged);
  if (damaged.length === 0) return [];
  const count = damaged.reduce((sum, [, n]) => sum + n, 0);
  // The others are refused where the port, or the EtherType, is known.
  const isRoce = damaged.every(([reason]) => reason !== 'truncated' && reason !== 'malformed');
  return [
    ofCapture(
      'damaged-packets',
      'warning',
      count,
      `${counted(count, isRoce ? 'RoCE packet' : 'frame')} could not be read: ${damaged.map(([reason, n]) => `${n} ${reason}`).join(', ')}`,
      summary.damaged.fragment === undefined
        ? `See them with roce dump; ${snapAdvice(summary.neededSnapLength)}.`
        : 'See them with roce dump. Fragments are not put together: lower the path MTU of the queue pairs below the MTU of the network.',
      summary.duration,
    ),
  ];
}

function causes({ summary }: Capture): Cause<'damaged-packets', never>[] {
  const damaged = Object.values(summary.damaged).reduce((sum, count) => sum + count, 0);
  if (damaged === 0) return [];
  const names = Object.keys(summary.damaged).join(', ').replaceAll('-', ' ');
  return [
    {
      kind: 'damaged-packets',
      severity: 'warning',
      rank: damaged * 2 > summary.rocePackets ? Rank.COSTS : Rank.NOTE,
      weight: 0,
      certainty: 'certain',
      text: `${counted(damaged, 'RoCE packet')} could not be read (${names}): the picture is not complete.`,
      culprit: undefined,
      chain: [],
      explains: [],
    },
  ];
}

export const damagedPackets = rule({
  kinds: [
    {
      kind: 'damaged-packets',
      title: 'Packets that could not be read',
      when: 'frames that are RoCE, or were cut before that shows, could not be parsed',
    },
  ],
  findInCapture: find,
  causeInCapture: causes,
});
