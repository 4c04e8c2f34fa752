/** Laws of every run on a path that loses nothing. */
import { EngineDevice, Network, Wire, type WireOptions } from '@node-roce/sim';
import { afterAll, beforeAll, expect } from 'vitest';

/** Few probes are needless: one when a peer is slower than ever before. So many packets of those received may be copies. */
export const mostDuplicates = (receivedPackets: number): number => 8 + receivedPackets / 200;

/** A network: its hosts, and whether each way between them is known to lose, double and overtake nothing. */
interface Watched {
  hosts: Set<object>;
  isClean: boolean;
}

const isCleanWay = (way: WireOptions | Wire): boolean => {
  if (way instanceof Wire) return false;
  const { delay: _delay, rate: _rate, markAt: _markAt, ...faults } = way;
  return Object.values(faults).every((value) => value === undefined || value === 0);
};

/**
 * The law for every network of a test file in which all hosts are engines, and all ways are without faults: almost nothing is sent twice.
 * It is looked at whenever time has passed. A host that a test stops itself, or a packet that it makes itself, is not the law's.
 *
 * @returns how often it was looked at so far
 */
export function holdLaw(): () => number {
  const watched = new WeakMap<Network, Watched>();
  const { add, link, run, stall } = Network.prototype;
  let looks = 0;
  const of = (network: Network): Watched => {
    let found = watched.get(network);
    if (found === undefined) {
      found = { hosts: new Set(), isClean: true };
      watched.set(network, found);
    }
    return found;
  };
  beforeAll(() => {
    Network.prototype.add = function (this: Network, host) {
      of(this).hosts.add(host);
      add.call(this, host);
    };
    Network.prototype.link = function (this: Network, from, to, ...ways) {
      if (!ways.every(isCleanWay)) of(this).isClean = false;
      link.call(this, from, to, ...ways);
    };
    Network.prototype.stall = function (this: Network, host, until) {
      of(this).isClean = false;
      stall.call(this, host, until);
    };
    Network.prototype.run = function (this: Network, done, until) {
      const result = run.call(this, done, until);
      const { hosts, isClean } = of(this);
      const engines = [...hosts].filter((host) => host instanceof EngineDevice);
      if (!isClean || engines.length < 2 || engines.length < hosts.size) return result;
      looks++;
      for (const { adapter } of engines) {
        const { duplicateRequest, receivedPackets } = adapter.counters();
        expect(duplicateRequest, 'packets that the receiver had').toBeLessThanOrEqual(
          mostDuplicates(receivedPackets),
        );
      }
      return result;
    };
  });
  afterAll(() => {
    Object.assign(Network.prototype, { add, link, run, stall });
  });
  return () => looks;
}
