/** The capture cut packets inside their headers. */
import { snapAdvice } from '../../read/snap-length.ts';
import { counted } from '../../units.ts';
import { ofCapture, rule } from './rule.ts';

export const cutHeaders = rule({
  kinds: [
    {
      kind: 'cut-headers',
      title: 'Headers cut by the capture',
      when: 'packets are cut inside their headers',
    },
  ],
  findInCapture: (capture) => {
    const { summary, hidesNaks } = capture;
    const count = summary.cutHeaders;
    if (count === 0) return [];
    return [
      ofCapture(
        'cut-headers',
        'note',
        count,
        `${counted(count, 'packet')} cut inside their headers: lengths of their READs${hidesNaks ? ', and whether they are ACKs or NAKs,' : ''} are not known`,
        `Capture again: ${snapAdvice(summary.neededSnapLength)}.`,
        summary.duration,
      ),
    ];
  },
});
