/** The capturing system reports drops. */
import { snapAdvice } from '../../read/snap-length.ts';
import { counted } from '../../units.ts';
import { ofCapture, rule } from './rule.ts';

export const captureDrops = rule({
  kinds: [
    { kind: 'capture-drops', title: 'Drops of the capture', when: 'the capturing system reports drops' },
  ],
  findInCapture: (capture) => {
    const { summary } = capture;
    const count = summary.droppedByCapture ?? 0;
    if (count <= 0) return [];
    return [
      ofCapture(
        'capture-drops',
        'warning',
        count,
        `The capturing system dropped ${counted(count, 'packet')}: packets that look lost may only be missing in the capture`,
        `Capture with larger buffers (tcpdump -B), or fewer bytes of each packet: ${snapAdvice(summary.neededSnapLength)}.`,
        summary.duration,
      ),
    ];
  },
});
