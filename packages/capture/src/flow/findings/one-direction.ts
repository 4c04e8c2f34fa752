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
    const seen = oneWay.reduce((sum, { aToB, bToA }) => sum + aToB.packets + bToA.packets, 0);
    // Packets large enough to be fragmented are at least as many as their ACKs or requests: fewer fragments are of something else.
    const isFragmented = fragments > 0 && fragments >= seen;
    const reason = isFragmented
      ? `the other one may be in the ${counted(fragments, 'fragmented packet')} that could not be read`
      : 'the capture does not show whether messages were answered and why packets were retransmitted';
    return [
      ofCapture(
        'one-direction',
        'note',
        count,
        `${counted(count, 'connection')} with one direction only (${names}): ${reason}`,
        isFragmented
          ? 'IP fragments are not put together: lower the path MTU of the queue pairs below the MTU of the network.'
          : 'Mirror both directions of the port. If both are mirrored, no answer was sent: look at the peer.',
        summary.duration,
      ),
    ];
  },
});
