/** Management datagrams of strangers: forged ones, and those of another dialogue with bits changed, at an end with live connections. */
import {
  CM_LAYOUTS,
  CmAttribute,
  type CmName,
  createRandom,
  MAD_BYTES,
  MAD_HEADER_BYTES,
  MadHeader,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { acceptInit, connectInit, gidOf, Pair, routeTo, SERVICE } from '../testing/pair.ts';

const COUNT = Number(process.env.ROCE_CM_HOSTILE ?? 20_000);
const BACKLOG = 16;
const LIVE = 10;

/** An end with live connections, and the MADs of a dialogue that it has nothing to do with. */
function scene() {
  const pair = new Pair(5);
  pair.b.cm.listen(SERVICE, BACKLOG);
  const live: number[] = [];
  for (let i = 0; i < LIVE; i++) {
    const id = pair.a.cm.connect(connectInit({ qpn: 0x100 + i }), pair.now);
    pair.run(1000);
    const request = pair.b.take('request');
    pair.b.cm.accept(request.id, acceptInit({ qpn: 0x200 + i }), pair.now);
    pair.run(1000);
    pair.a.cm.ready(id);
    pair.run(1000);
    live.push(request.id);
  }
  pair.b.events.length = 0;
  const other = new Pair(6);
  const dialogue: Uint8Array[] = [];
  other.network = ({ mad }) => {
    dialogue.push(mad.slice());
    return [100];
  };
  const [id, far] = other.established();
  other.a.cm.disconnect(id, other.now);
  other.run(1000);
  other.b.cm.disconnect(far, other.now);
  other.a.cm.resolve({ serviceId: SERVICE, route: routeTo(2) }, other.now);
  other.a.cm.destroy(other.a.cm.connect(connectInit({ qpn: 0x999 }), other.now), other.now);
  other.run(1000);
  return { pair, live, dialogue };
}

function check({ pair, live }: ReturnType<typeof scene>): void {
  const { cm } = pair.b;
  expect(cm.size.pending).toBeLessThanOrEqual(BACKLOG);
  for (const id of live) expect(cm.stateOf(id)).toBe('ESTABLISHED');
  // Connections that strangers began end, once the program has refused them.
  for (const event of pair.b.events.splice(0)) {
    expect(event.type).toMatch(/request|rejected|disconnected|timewait/);
    if (event.type.endsWith('request')) cm.destroy(event.id, pair.now);
  }
  pair.run(1000e6);
  expect(cm.size).toMatchObject({ connections: LIVE, pending: 0, timers: 0 });
  for (const id of live) expect(cm.stateOf(id)).toBe('ESTABLISHED');
}

/** Now and then the program looks, time passes, and waiting requests are refused. */
function live(pair: Pair, i: number): void {
  if (i % 1000 !== 0) return;
  for (const event of pair.b.events.splice(0))
    if (event.type.endsWith('request')) pair.b.cm.destroy(event.id, pair.now);
  pair.run(10_000);
}

describe(`${COUNT} datagrams`, () => {
  test('forged: every field at random', () => {
    const stage = scene();
    const { pair } = stage;
    const random = createRandom(7).next;
    const names = Object.keys(CmAttribute) as CmName[];
    const mad = new Uint8Array(MAD_BYTES);
    for (let i = 1; i <= COUNT; i++) {
      const words = new Uint32Array(mad.buffer);
      for (let w = 0; w < words.length; w++) words[w] = random();
      mad.set([1, 7, 2, 3]);
      const name = names[random() % names.length];
      MadHeader.attributeId.set(mad, 0, CmAttribute[name], 'attributeId');
      // Most of them for the service and the address that are there.
      if (name === 'REQ' && random() % 4 > 0) {
        CM_LAYOUTS.REQ.serviceId.set(mad, MAD_HEADER_BYTES, SERVICE, 'serviceId');
        CM_LAYOUTS.REQ.primaryRemoteGid.set(mad, MAD_HEADER_BYTES, gidOf(2), 'gid');
        CM_LAYOUTS.REQ.transportService.set(mad, MAD_HEADER_BYTES, 0, 'transport');
      }
      if (name === 'SIDR_REQ') CM_LAYOUTS.SIDR_REQ.serviceId.set(mad, MAD_HEADER_BYTES, SERVICE, 'serviceId');
      pair.deliver(1, mad);
      live(pair, i);
    }
    expect(pair.b.cm.counters.overflowed).toBeGreaterThan(0);
    check(stage);
  });

  test('mutated: bits of another dialogue changed', () => {
    const stage = scene();
    const { pair, dialogue } = stage;
    expect(dialogue.length).toBeGreaterThanOrEqual(8);
    const random = createRandom(8).next;
    for (let i = 1; i <= COUNT; i++) {
      const mad = dialogue[random() % dialogue.length].slice();
      for (let flips = 1 + (random() % 4); flips > 0; flips--)
        mad[random() % MAD_BYTES] ^= 1 << (random() % 8);
      const length = random() % 16 === 0 ? random() % MAD_BYTES : MAD_BYTES;
      pair.deliver(1, mad.subarray(0, length));
      live(pair, i);
    }
    expect(pair.b.cm.counters.malformed).toBeGreaterThan(0);
    expect(pair.b.cm.counters.unexpected).toBeGreaterThan(0);
    check(stage);
  });
});
