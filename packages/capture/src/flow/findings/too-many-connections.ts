/** More connections than the analysis follows. */
import { counted, formatCount } from '../../units.ts';
import { ofCapture, rule } from './rule.ts';

export const tooManyConnections = rule({
  kinds: [
    {
      kind: 'too-many-connections',
      title: 'Too many connections',
      when: 'more directions than the analysis follows',
    },
  ],
  findInCapture: (capture) => {
    const { summary } = capture;
    const { connections, tooMany: count } = capture;
    if (count === 0) return [];
    return [
      ofCapture(
        'too-many-connections',
        'warning',
        count,
        `${counted(count, 'packet')} of connections past the first ${formatCount(connections.length)}, which are not followed`,
        'Analyze a part of the capture: roce export with --address, --qp, --from and --to.',
        summary.duration,
      ),
    ];
  },
});
