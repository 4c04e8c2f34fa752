/** Peers that vanish in each phase of the dialogue. */
// @module-tag slow
import type { PerfOptions } from '@node-roce/perf';
import { describe, expect, test } from 'vitest';
import { expectError, guard } from './guard.ts';
import { type Channel, meet } from './meeting.ts';
import { closed } from './sides.ts';

guard();

/** A test that needs both sides' data; and one that ends at a barrier of both. */
const TESTS: { name: string; ours: PerfOptions; peer: object }[] = [
  {
    name: 'send bw',
    ours: { verb: 'send', measure: 'bw', size: 64, iters: 20 },
    peer: { verb: 'send', kind: 'bw', size: 64, iters: 20 },
  },
  {
    name: 'write lat',
    ours: { verb: 'write', measure: 'lat', size: 2, iters: 20 },
    peer: { verb: 'write', kind: 'lat', size: 2, iters: 20 },
  },
  {
    name: 'read bw -b -q 2',
    ours: { verb: 'read', measure: 'bw', size: 64, iters: 20, bidirectional: true, qps: 2 },
    peer: { verb: 'read', kind: 'bw', size: 64, iters: 20, duplex: true, qps: 2 },
  },
];
const WAYS = {
  closes: (socket: Channel['socket']) => socket.destroy(),
  resets: (socket: Channel['socket']) => socket.resetAndDestroy(),
  'falls silent': (socket: Channel['socket']) => closed(socket),
};

/** A channel that ends before its exchange `last`; `count` is of all. */
function vanishing(last: number, way: (socket: Channel['socket']) => unknown, count: { exchanges: number }) {
  return (channel: Channel) => {
    const step = async <T>(exchange: () => Promise<T>) => {
      if (count.exchanges++ === last) {
        await way(channel.socket);
        throw new Error('vanished');
      }
      return exchange();
    };
    return new Proxy(channel, {
      get: (_, name: keyof Channel | 'done' | 'close') => {
        if (name === 'exchange') return (message: Buffer) => step(() => channel.exchange(message));
        if (name === 'exchangeKey') return (key: object) => step(() => channel.exchangeKey(key));
        const value = Reflect.get(channel, name, channel);
        return typeof value === 'function' ? value.bind(channel) : value;
      },
    });
  };
}

describe.each(TESTS)('$name: a peer that vanishes', ({ name, ours, peer }) => {
  describe.each(['server', 'client'] as const)('of a %s', (role) => {
    test.each(Object.keys(WAYS) as (keyof typeof WAYS)[])('%s, in each phase', async (way) => {
      const all = { exchanges: 0 };
      const whole = await meet(role, ours, peer, { spoil: vanishing(-1, WAYS[way], all), timeout: 120 });
      expect(whole.error).toBeUndefined();
      expect(all.exchanges).toBeGreaterThan(8);
      const phases = Array.from({ length: all.exchanges }, async (_, last) => {
        const spoil = vanishing(last, WAYS[way], { exchanges: 0 });
        const outcome = await meet(role, ours, peer, { spoil, index: last });
        const where = `${name} as ${role}, ${way} before exchange ${last} of ${all.exchanges}`;
        expectError(outcome, undefined, where);
      });
      await Promise.all(phases);
    });
  });
});
