/** Reliable connections between any number of devices, all at work at once: what a capture in a data centre has in it. */
import type { Random } from '@node-roce/wire';
import type { ConnectionOptions, SimDevice, SimQp } from './endpoint.ts';
import type { Network } from './network.ts';
import { Flow, type FlowEnd, flowEnd } from './workload-flow.ts';
import { ARENA_BYTES } from './workload-layout.ts';
import { OwnReceives } from './workload-receives.ts';

export interface ConnectionsOptions {
  network: Network;
  /** Their arenas have `ARENA_BYTES` for each pair. */
  devices: readonly SimDevice[];
  /** Of each connection, the numbers of the two devices. */
  pairs: readonly (readonly [number, number])[];
  connection: ConnectionOptions;
  /** Requests of each direction that has any. */
  count: number;
  /** Chance that only the first of the two ends makes requests, 0 … 1; 0 by default. */
  oneWay?: number;
  /** Time between two receives that a queue pair posts, µs; 0, the default, keeps ten of them posted. */
  receiveEvery?: number;
  /** First PSN of every queue pair, as programs have it that take a constant; drawn for each by default. */
  psn?: number;
  random: Random;
}

/** One of them. */
export interface SimConnection {
  /** The ends' queue pairs, in the order of the pair. */
  a: SimQp;
  b: SimQp;
  /** The requests of each end; undefined for one that only answers. */
  aToB: Flow;
  bToA: Flow | undefined;
}

/** A workload of several connections at once. */
export class ConnectionsWorkload {
  readonly connections: readonly SimConnection[];

  constructor(options: ConnectionsOptions) {
    const noise = Uint8Array.from({ length: 2 * ARENA_BYTES }, () => options.random.next());
    this.connections = options.pairs.map((pair, i) => connect(options, pair, i * ARENA_BYTES, noise));
    this.#post();
  }

  #post(): void {
    for (const { aToB, bToA } of this.connections) {
      aToB.post();
      bToA?.post();
    }
  }

  /** Connections that were given up. */
  get failed(): number {
    return this.connections.filter(isFailed).length;
  }

  /**
   * To be called after each step: checks what completed, posts more. True once every connection is done, or has
   * failed.
   * @throws Error when something happened that must not
   */
  step(): boolean {
    let isDone = true;
    for (const connection of this.connections) {
      const { a, b, aToB, bToA } = connection;
      const [aSends, aReceives, bSends, bReceives] = [
        a.pollSend(),
        a.pollReceive(),
        b.pollSend(),
        b.pollReceive(),
      ];
      aToB.poll(aSends, bReceives);
      bToA?.poll(bSends, aReceives);
      isDone &&= isFailed(connection) || (aToB.done && (bToA?.done ?? true));
    }
    if (!isDone) this.#post();
    return isDone;
  }
}

const isFailed = ({ aToB, bToA }: SimConnection) => (aToB.failure ?? bToA?.failure) !== undefined;

function connect(
  { network, devices, connection, count, random, oneWay = 0, receiveEvery = 0, ...given }: ConnectionsOptions,
  [i, j]: readonly [number, number],
  at: number,
  noise: Uint8Array,
): SimConnection {
  const [left, right] = [devices[i], devices[j]];
  const [a, b] = [left, right].map((device) => {
    device.arena.set(noise.subarray(random.between(0, ARENA_BYTES)).subarray(0, ARENA_BYTES), at);
    const drawn = random.chance(0.25) ? 0x100_0000 - random.between(1, 20) : random.between(0, 0xff_ffff);
    const psn = given.psn ?? drawn;
    return device.createQp({ service: 'RC', psn });
  });
  a.connect(b.info, connection);
  b.connect(a.info, connection);
  const [aEnd, bEnd] = [flowEnd(left, a, at), flowEnd(right, b, at)];
  const bothWays = !random.chance(oneWay);
  const flow = (from: FlowEnd, to: FlowEnd) => {
    let next = 0;
    const receives = new OwnReceives(to, () => {
      if (network.now < next) return false;
      next = network.now + receiveEvery;
      return true;
    });
    return new Flow({ from, to, count, random, receives });
  };
  return { a, b, aToB: flow(aEnd, bEnd), bToA: bothWays ? flow(bEnd, aEnd) : undefined };
}
