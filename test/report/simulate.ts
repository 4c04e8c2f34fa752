import { tap, tapCapture } from '@node-roce/sim';
import { runConnections } from '../capture/sim/run.ts';

/**
 * A capture of so many packets, as pcapng, from the middle of a network with loss, reordering, RNR NAKs and ECN
 * marks, of several connections that are all at work at once.
 */
export function simulate(packets: number, { seed = 5, connections = 12 } = {}): Uint8Array {
  // How many packets a request makes depends on what the seed draws: more requests until there are enough.
  for (let count = Math.ceil(packets / connections / 8); ; count *= 2) {
    const { network } = runConnections({
      seed,
      network: 'all',
      loss: 0.01,
      ends: ['engine', 'engine'],
      hosts: 4,
      connections,
      count,
    });
    const seen = tap(network, 'middle');
    if (seen.length >= packets) return tapCapture(seen.slice(0, packets));
  }
}
