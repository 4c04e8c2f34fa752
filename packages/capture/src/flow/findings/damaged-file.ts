/** The file is damaged or cut short. */
import { ofCapture, Rank, rule } from './rule.ts';

export const damagedFile = rule({
  kinds: [{ kind: 'damaged-file', title: 'Damaged file', when: 'the file is damaged or cut short' }],
  findInCapture: ({ summary: { damage, duration } }) =>
    damage === undefined
      ? []
      : [
          ofCapture(
            'damaged-file',
            'error',
            1,
            `Reading stopped before the end of the file: ${damage}; only the packets before that point were analysed`,
            'Was the capture still being written, or the copy cut short?',
            duration,
          ),
        ],
  causeInCapture: ({ summary: { damage } }) =>
    damage === undefined
      ? []
      : [
          {
            kind: 'damaged-file',
            severity: 'error',
            rank: Rank.NOTE,
            weight: 0,
            certainty: 'certain',
            text: `The file is damaged or cut short: only what stands before the damage was analyzed.`,
            culprit: undefined,
            chain: [],
            explains: [],
          },
        ],
});
