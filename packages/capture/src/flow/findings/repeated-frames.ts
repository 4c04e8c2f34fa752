/** Frames that the capture shows twice. */
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import type { Direction } from '../track/direction.ts';
import { event } from './chain.ts';
import { type Cause, finding, moment, Rank, rule, Stage, type Subject } from './rule.ts';

function find(subject: Subject): FindingOf<'repeated-frames'>[] {
  const { direction } = subject;
  const { events } = direction.record;
  const repeated = events.get('repeated-frame');
  if (repeated === undefined) return [];
  return [
    finding(
      subject,
      repeated,
      'repeated-frames',
      'note',
      `${counted(repeated.count, 'duplicate frame')}, the first ${moment(repeated.start)}: packets that were sent once`,
      direction.isMirrored
        ? 'A mirror of two ports shows every packet twice. The counts of this analysis have each packet once.'
        : 'A network that duplicates packets does this, or a mirror of a part of the traffic; receivers drop duplicates. The counts of this analysis have each packet once.',
    ),
  ];
}

/** ACKs that a host sent again though its peer retransmitted nothing: it got packets twice. */
const answeredTwice = ({ counts, peer }: Direction): number =>
  counts.retransmitted === 0 ? (peer?.acknowledgedTwice ?? 0) : 0;

/** The network duplicates packets: told once a connection. */
function causes(subject: Subject): Cause<'repeated-frames', 'repeated-frames' | 'ghost-acks'>[] {
  const { direction, requester, responder } = subject;
  const { peer } = direction;
  if (!direction.isDoubled || (peer !== undefined && direction.from === 'b')) return [];
  const both = [direction, ...(peer === undefined ? [] : [peer])];
  const shown = both.reduce((sum, { counts }) => sum + counts.repeatedFrames, 0);
  const twice = both.reduce((sum, each) => sum + answeredTwice(each), 0);
  const frames = both.flatMap(({ record }) => record.events.get('repeated-frame')?.frames[0] ?? []);
  const between = `between ${requester} and ${responder}`;
  return [
    {
      kind: 'repeated-frames',
      severity: 'note',
      rank: Rank.NOTE,
      weight: shown,
      certainty: 'likely',
      text:
        twice > 0
          ? `The network duplicates packets ${between}: ${counted(shown, 'frame')} shown twice, ${twice} acknowledged twice.`
          : `The network, or the mirror, duplicates packets ${between}: ${counted(shown, 'frame')} shown twice.`,
      culprit: 'network',
      chain: event(Math.min(...frames), 'the first packet that comes a second time'),
      explains: twice > 0 ? ['ghost-acks'] : [],
    },
  ];
}

export const repeatedFrames = rule({
  kinds: [{ kind: 'repeated-frames', title: 'Frames shown twice', when: 'the capture shows frames twice' }],
  find,
  stage: Stage.LAST,
  cause: causes,
});
