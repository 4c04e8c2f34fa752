import { expect, test } from 'vitest';
import { Pair } from '../testing/pair.ts';
import { REUSE_DISTANCE, RecentNumbers } from './recent-numbers.ts';

test('a number is kept back until so many others have been given back', () => {
  const recent = new RecentNumbers();
  recent.add(7);
  for (let i = 1; i < REUSE_DISTANCE; i++) recent.add(1000 + i);
  expect(recent.has(7)).toBe(true);
  recent.add(0);
  expect(recent.has(7)).toBe(false);
  expect(recent.has(1001)).toBe(true);
});

/** A source of randomness that gives each number twice. */
function stutter(): () => number {
  let drawn = 0;
  return () => Math.imul(drawn++ >> 1, 0x9e37_79b1) >>> 0;
}

test('a QPN and a key that were just given back are not the next, even if they are drawn again', () => {
  const { adapter, ...side } = new Pair({ left: { random: stutter() } }).left;
  const cap = { maxSendWr: 1, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
  const [pd, cq] = [side.pd, side.cqHandle];
  const qpns = new Set<number>();
  const keys = new Set<number>();
  for (let i = 0; i < 200; i++) {
    const { qpn } = adapter.createQp({ pd, type: 'RC', sendCq: cq, recvCq: cq, cap, sqSigAll: false });
    adapter.destroyQp(qpn);
    qpns.add(qpn);
    const init = { pd, backing: 9, buffer: new ArrayBuffer(8), offset: 0, length: 8, access: 0 };
    const mr = adapter.registerMr(init);
    adapter.deregisterMr(mr.handle);
    keys.add(mr.rkey >>> 8);
    const mw = adapter.allocMw(pd, 2);
    adapter.deallocMw(mw.handle);
    keys.add(mw.rkey >>> 8);
  }
  expect([qpns.size, keys.size]).toEqual([200, 400]);
});

test('a QPN that the host keeps back is not given out', () => {
  const qpnOf = (k: number) => Math.imul(k, 0x9e37_79b1) & 0x7f_ffff;
  // Every second one that `stutter` draws.
  const kept = new Set(Array.from({ length: 500 }, (_, k) => qpnOf(2 * k)));
  const options = { random: stutter(), isReserved: (qpn: number) => kept.has(qpn) };
  const { adapter, ...side } = new Pair({ left: options }).left;
  const cap = { maxSendWr: 1, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
  const [pd, cq] = [side.pd, side.cqHandle];
  for (let i = 0; i < 200; i++) {
    const { qpn } = adapter.createQp({ pd, type: 'RC', sendCq: cq, recvCq: cq, cap, sqSigAll: false });
    expect(kept.has(qpn)).toBe(false);
  }
});
