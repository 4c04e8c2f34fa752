/** Two ends that use different GIDs: each sends to an address that the other does not listen at. */
import type { Direction } from '../track/direction.ts';
import { event } from './chain.ts';
import { type Cause, findingOf, Rank, rule, SILENCE, type Silence, Stage, type Subject } from './rule.ts';

function causes(subject: Subject): Cause<'gid-mismatch', Silence>[] {
  const { direction, connection, capture } = subject;
  const { addressOf } = capture;
  const pair = capture.gidPairs.get(direction.connection);
  if (pair === undefined) return [];
  const { one, other } = pair;
  const { a, b } = connection;
  const [kind, otherKind] = [one.path.facts.addressKind, other.path.facts.addressKind];
  const isKind = kind !== otherKind;
  const sender = one.from === 'a' ? a.address : b.address;
  const peer = addressOf(other.key.source);
  const [first, second] = isKind
    ? [versionOf(one, otherKind), versionOf(other, kind)]
    : [`from ${sender}`, `to ${addressOf(other.key.destination)}`];
  return [
    {
      kind: 'gid-mismatch',
      severity: 'error',
      rank: Rank.ENDS,
      weight: 12,
      certainty: isKind ? 'certain' : 'likely',
      text: isKind
        ? `Both ends use different GID types: ${sender} sends ${first}, ${peer} sends ${second}; neither answers.`
        : `Both ends use different GIDs: one sends ${first}, ${peer} sends ${second}; neither answers.`,
      culprit: sender,
      chain: [
        ...event(
          one.span.firstFrame,
          `${sender} sends ${isKind ? first : `to ${addressOf(one.key.destination)}`}`,
        ),
        ...event(other.span.firstFrame, `${peer} sends ${second}`),
      ].sort((x, y) => x.frame! - y.frame!),
      explains: SILENCE,
      finding: findingOf(
        subject,
        `the two ends use different GIDs: ${kind} here, ${otherKind} from the other end`,
        'Choose GIDs of one kind at both ends: show_gids lists them; perftest and ibv_rc_pingpong take an index (-x, -g), NCCL NCCL_IB_GID_INDEX, UCX UCX_IB_GID_INDEX.',
        [one.span.firstFrame, other.span.firstFrame],
      ),
    },
  ];
}

/** `RoCE v1` against v2; between two of v2 the family. */
function versionOf({ path }: Direction, otherKind: string): string {
  const { version, addressKind } = path.facts;
  const isOtherV1 = otherKind.endsWith('RoCE v1');
  if ((version === 1) !== isOtherV1) return version === 1 ? 'RoCE v1' : 'RoCE v2';
  return `over ${addressKind}`;
}

export const gidMismatch = rule({
  kinds: [
    {
      kind: 'gid-mismatch',
      title: 'Different GID types',
      when: 'the two ends send to each other with GIDs of different kinds, so that neither takes the packets of the other',
    },
  ],
  stage: Stage.GIDS,
  cause: causes,
});
