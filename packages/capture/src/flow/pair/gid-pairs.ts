/** Lone directions of two hosts that send to each other with different GIDs: their addresses do not meet. */
import { hostOf } from '../../read/addresses.ts';
import type { ConnectionState, Direction } from '../track/direction.ts';

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
    if (second !== undefined || first.counts.requests === 0 || !first.isUnanswered) continue;
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
  const host = (index: number) => hostOf(addressOf(index));
  const ends =
    mac >= 0 && facts.toMac >= 0 && mac + facts.toMac > 0
      ? [mac, facts.toMac]
      : [host(source), host(destination)];
  return (isOpposite ? ends.reverse() : ends).join(' ');
}
