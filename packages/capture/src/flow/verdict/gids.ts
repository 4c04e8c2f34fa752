/** Two ends that use different GIDs: each sends to an address that the other does not listen at. */
import type { Connection } from '../analysis.ts';
import type { ConnectionState, Direction } from '../track/direction.ts';
import { type Cause, type Context, event, findingOf, Rank } from './cause.ts';
import { isUnanswered } from './path-causes.ts';

/** Two directions against each other that nobody answers. */
export interface GidPair {
  one: Direction;
  other: Direction;
}

/** The pairs of lone directions between the same two hosts whose addresses do not meet. */
export function gidPairs(
  states: readonly ConnectionState[],
  addressOf: (index: number) => string,
): Map<ConnectionState, GidPair> {
  const found = new Map<ConnectionState, GidPair>();
  // By where they come from and go to. A router's MAC addresses are those of all hosts behind it: only a sole candidate counts.
  const lone = new Map<string, Direction[]>();
  for (const { first, second } of states) {
    if (second !== undefined || first.counts.requests === 0 || !isUnanswered(first)) continue;
    const key = placeOf(first, false, addressOf);
    const known = lone.get(key);
    if (known === undefined) lone.set(key, [first]);
    else known.push(first);
  }
  for (const [key, directions] of lone) {
    const [one] = directions;
    const opposite = lone.get(placeOf(one, true, addressOf));
    if (directions.length !== 1 || opposite?.length !== 1 || key === placeOf(one, true, addressOf)) continue;
    const [other] = opposite;
    if (one.key.source === other.key.destination && one.key.destination === other.key.source) continue;
    found.set(one.connection, { one, other });
  }
  return found;
}

/** Sender and receiver of a direction, or of one against it: by MAC addresses, else by addresses. */
function placeOf(
  { key: { mac, source, destination }, path: { facts } }: Direction,
  isOpposite: boolean,
  addressOf: (index: number) => string,
): string {
  const plain = (index: number) => addressOf(index).replace(/^::ffff:/, '');
  const ends =
    mac >= 0 && facts.toMac >= 0 && mac + facts.toMac > 0
      ? [mac, facts.toMac]
      : [plain(source), plain(destination)];
  return (isOpposite ? ends.reverse() : ends).join(' ');
}

export function gidCause(
  context: Context,
  { one, other }: GidPair,
  { a, b }: Pick<Connection, 'a' | 'b'>,
  addressOf: (index: number) => string,
): Cause {
  const [kind, otherKind] = [one.path.facts.addressKind, other.path.facts.addressKind];
  const isKind = kind !== otherKind;
  const sender = one.from === 'a' ? a.address : b.address;
  const peer = addressOf(other.key.source);
  const [first, second] = isKind
    ? [versionOf(one, otherKind), versionOf(other, kind)]
    : [`from ${sender}`, `to ${addressOf(other.key.destination)}`];
  return {
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
    explains: ['retries-exceeded', 'retransmissions', 'stalls', 'one-direction'],
    finding: findingOf(
      context,
      one,
      `the two ends use different GIDs: ${kind} here, ${otherKind} from the other end`,
      'Choose GIDs of one kind at both ends: show_gids lists them; perftest and ibv_rc_pingpong take an index (-x, -g), NCCL NCCL_IB_GID_INDEX, UCX UCX_IB_GID_INDEX.',
      [one.span.firstFrame, other.span.firstFrame],
    ),
  };
}

/** `RoCE v1` against v2; between two of v2 the family. */
function versionOf({ path }: Direction, otherKind: string): string {
  const { version, addressKind } = path.facts;
  const isOtherV1 = otherKind.endsWith('RoCE v1');
  if ((version === 1) !== isOtherV1) return version === 1 ? 'RoCE v1' : 'RoCE v2';
  return `over ${addressKind}`;
}
