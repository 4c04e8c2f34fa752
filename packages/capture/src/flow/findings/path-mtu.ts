/** Long packets are refused, or never answered while shorter ones are. */
import { formatCount } from '../../units.ts';
import { event } from './chain.ts';
import { type Cause, findingOf, Rank, rule, SILENCE, type Silence, Stage, type Subject } from './rule.ts';

/** Packets shorter than this get through wherever IP does. */
const LONG = 512;

function causes(subject: Subject): Cause<'path-mtu', Silence | 'nak-invalid-request'>[] {
  const { direction } = subject;
  const { requester: tracker, peer } = direction;
  if (tracker === undefined || peer === undefined) return [];
  const { requester, responder } = subject;
  const refused = peer.record.events.get('nak-invalid-request');
  const failed = tracker.messages.endedBy('invalid-request');
  const size = tracker.failedSize;
  if (refused !== undefined && failed !== undefined && failed.packets > 1) {
    if (size < LONG || tracker.mostAnswered >= size || failed.operation.includes('READ')) return [];
    // The address and the rights of a WRITE have a code of their own; the receive of a SEND may be too short.
    const what = failed.operation.startsWith('SEND') ? 'its path MTU, or its receive,' : 'its path MTU';
    return [
      mtuCause(
        subject,
        `${responder} refused a packet of ${formatCount(size)} bytes from ${requester}: ${what} may be smaller.`,
        `a packet of ${formatCount(size)} bytes was refused as an invalid request: ${what.replace('its', "the responder's")} may be smaller`,
        [failed.firstFrame, refused.frames[0]],
        ['nak-invalid-request'],
      ),
    ];
  }
  const { oldestSize, mostAnswered } = tracker;
  if (direction.ended.failure?.failure !== 'retries-exceeded' || oldestSize < LONG) return [];
  if (mostAnswered < 0 || mostAnswered >= oldestSize) return [];
  // An RNR NAK for it shows that it arrives.
  if (direction.ended.failure.rnrNaks > 0) return [];
  return [
    mtuCause(
      subject,
      `Packets of ${formatCount(oldestSize)} bytes from ${requester} to ${responder} vanish, shorter ones (${formatCount(mostAnswered)}) are answered: path MTU.`,
      `packets of ${formatCount(oldestSize)} bytes are never answered, those of up to ${formatCount(mostAnswered)} are`,
      [tracker.oldestFrame],
      SILENCE,
    ),
  ];
}

function mtuCause<const Folded extends string>(
  subject: Subject,
  text: string,
  statement: string,
  frames: number[],
  explains: readonly Folded[],
): Cause<'path-mtu', Folded> {
  return {
    kind: 'path-mtu',
    severity: 'error',
    rank: Rank.ENDS,
    weight: 6,
    certainty: 'likely',
    text,
    culprit: 'network',
    chain: frames.flatMap((frame, i) => event(frame, i === 0 ? 'the long packet' : 'NAK invalid request')),
    explains,
    finding: findingOf(
      subject,
      statement,
      'Compare the path MTU of both queue pairs (ibv_devinfo, -m of perftest) with the MTU of every link and switch on the way.',
      frames,
    ),
  };
}

export const pathMtu = rule({
  kinds: [
    {
      kind: 'path-mtu',
      title: 'Path MTU',
      when: 'long packets are refused, or never answered while shorter ones are',
    },
  ],
  stage: Stage.PATH,
  cause: causes,
});
