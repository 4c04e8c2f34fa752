/** Divides the packets that passed both taps by the side of their sender. */

/** A packet that passed both taps: its source is on one side, its destination on the other. */
export interface Passage {
  source: string;
  destination: string;
}

/** A multicast address is on no side (RFC 5771, RFC 4291 §2.7). */
const MULTICAST = /^(22[4-9]|23\d)\.|^ff[\da-f]{2}:/;

/**
 * Groups packets by the hosts that they connect, and divides each group by the side of its senders. Which of its two parts came from A's side,
 * the addresses do not show; a group with one empty part went one way.
 */
export function divideBySide<P extends Passage>(packets: readonly P[]): [P[], P[]][] {
  const hosts = new Hosts();
  // A route that changed can contradict another: the pairs with the most packets decide.
  for (const { source, destination } of busiestPairs(packets)) hosts.oppose(source, destination);
  const divided = new Map<HostGroup, [P[], P[]]>();
  for (const packet of packets) {
    const { group, isOpposite } = hosts.place(packet.source);
    let parts = divided.get(group);
    if (parts === undefined) {
      parts = [[], []];
      divided.set(group, parts);
    }
    parts[isOpposite ? 1 : 0].push(packet);
  }
  return [...divided.values()];
}

function busiestPairs(packets: readonly Passage[]): Passage[] {
  const pairs = new Map<string, { packet: Passage; count: number }>();
  for (const packet of packets) {
    if (MULTICAST.test(packet.destination)) continue;
    const key = `${packet.source}>${packet.destination}`;
    const known = pairs.get(key);
    if (known === undefined) pairs.set(key, { packet, count: 1 });
    else known.count++;
  }
  return [...pairs.values()].sort((x, y) => y.count - x.count).map(({ packet }) => packet);
}

/** The hosts whose sides are known relative to one another. */
type HostGroup = Place[];

interface Place {
  group: HostGroup;
  isOpposite: boolean;
}

class Hosts {
  readonly #places = new Map<string, Place>();

  place(host: string): Place {
    let place = this.#places.get(host);
    if (place === undefined) {
      place = { group: [], isOpposite: false };
      place.group.push(place);
      this.#places.set(host, place);
    }
    return place;
  }

  /** Puts two hosts on opposite sides, unless an earlier pair has decided otherwise. */
  oppose(one: string, other: string): void {
    const [x, y] = [this.place(one), this.place(other)];
    if (x.group === y.group) return;
    const [moved, kept] = x.group.length < y.group.length ? [x.group, y.group] : [y.group, x.group];
    const turns = x.isOpposite === y.isOpposite;
    for (const place of moved) {
      place.group = kept;
      if (turns) place.isOpposite = !place.isOpposite;
      kept.push(place);
    }
  }
}
