/** Connections one after the other: nothing of them stays. */
import { expect, test } from 'vitest';
import { acceptInit, connectInit, Pair, SERVICE } from '../testing/pair.ts';

const COUNT = Number(process.env.ROCE_CM_CONNECTIONS ?? 2000);
const EMPTY = { connections: 0, pending: 0, keys: 0, timers: 0 };

test(`${COUNT} connections in a row, and ids that do not come back soon`, () => {
  const pair = new Pair();
  const { a, b } = pair;
  b.cm.listen(SERVICE);
  const ids = new Set<number>();
  const timing = { packetLifetime: 8, responseTimeout: 8 };
  for (let i = 0; i < COUNT; i++) {
    const qpn = 0x100 + i;
    const id = a.cm.connect(connectInit({ qpn, ...timing }), pair.now);
    expect(ids.has(id)).toBe(false);
    ids.add(id);
    if (ids.size > 1000) ids.clear();
    pair.run(300);
    const request = b.take('request');
    b.cm.accept(request.id, acceptInit({ qpn }), pair.now);
    pair.run(300);
    a.take('response');
    a.cm.ready(id);
    pair.run(300);
    a.cm.disconnect(id, pair.now);
    pair.run(300);
    b.cm.disconnect(request.id, pair.now);
    pair.run(300);
    a.events.length = 0;
    b.events.length = 0;
  }
  // TIMEWAIT alone keeps some of them.
  expect(a.cm.size.connections).toBeLessThan(1000);
  pair.run(1e6);
  for (const { cm } of pair.ends) {
    expect(cm.size).toEqual(EMPTY);
    expect(cm.counters).toMatchObject({ unexpected: 0, retried: 0, malformed: 0, overflowed: 0 });
  }
});
