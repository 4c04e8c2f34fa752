/** Times of frames that go back: what rests on times is then no evidence. */
import { counted, formatDuration } from '../../units.ts';
import { ofCapture, rule } from './rule.ts';

export const clockBack = rule({
  kinds: [{ kind: 'clock-back', title: 'Times that go back', when: 'times of frames go back' }],
  findInCapture: ({ clock: { stepsBack, longestStep } }) =>
    stepsBack === 0
      ? []
      : [
          ofCapture(
            'clock-back',
            'warning',
            stepsBack,
            `${counted(stepsBack, 'timestamp')} ${stepsBack === 1 ? 'goes' : 'go'} back, by up to ${formatDuration(longestStep)}: durations and causes after that are likely at best`,
            'Frames that are out of order in the file can be sorted (reordercap, or mergecap without -a); a clock that was set during the capture cannot be corrected.',
          ),
        ],
});
