/** Reliable connections of which the capture shows one side. */
import { counted } from '../../units.ts';
import { ofCapture, rule } from './rule.ts';

export const oneDirection = rule({
  kinds: [
    {
      kind: 'one-direction',
      title: 'One direction only',
      when: 'reliable connections of which one direction is in the capture',
    },
  ],
  findInCapture: (capture) => {
    const { summary } = capture;
    const oneWay = capture.connections.filter(
      ({ aToB, bToA, transport }) =>
        (aToB.packets === 0 || bToA.packets === 0) && (transport === 'RC' || transport === 'XRC'),
    );
    const count = oneWay.length;
    if (count === 0) return [];
    const ids = oneWay.slice(0, 5).map(({ id }) => `#${id}`);
    const names = `${ids.join(', ')}${count > 5 ? ' …' : ''}`;
    const { fragment: fragments = 0 } = summary.damaged;
    const reason =
      fragments > 0
        ? `the other one may be in the ${counted(fragments, 'fragmented packet')} that could not be read`
        : 'the capture does not show whether messages were answered and why packets were retransmitted';
    return [
      ofCapture(
        'one-direction',
        'note',
        count,
        `${counted(count, 'connection')} with one direction only (${names}): ${reason}`,
        fragments > 0
          ? 'IP fragments are not put together: lower the path MTU of the queue pairs below the MTU of the network.'
          : 'Mirror both directions of the port. If both are mirrored, no answer was sent: look at the peer.',
        summary.duration,
      ),
    ];
  },
});
