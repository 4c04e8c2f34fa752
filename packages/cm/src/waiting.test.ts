import { encodeCm } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { gidOf, SERVICE } from '../testing/pair.ts';
import { WaitingRequests } from './waiting.ts';

/** A request with its number in all that is looked at here. */
const request = (number: number): Uint8Array =>
  encodeCm({
    name: 'REQ',
    transactionId: BigInt(number),
    localCommId: 0xffff_ff00 + (number & 0xff),
    serviceId: SERVICE,
    localQpn: number,
    pathMtu: 3,
    privateData: Uint8Array.of(number & 0xff, number >> 8),
  });
const routeOf = (number: number) => ({
  sgidIndex: number & 3,
  gid: gidOf(number & 0xff),
  trafficClass: number & 0xff,
  hopLimit: 255 - (number & 0xff),
  flowLabel: 0xf_f000 + (number & 0xff),
});

test('each is given back as it came, whatever came and went between', () => {
  const waiting = new WaitingRequests();
  const there = new Set<number>();
  const [first, second] = [1, 200];
  const add = (number: number) => {
    // The MAD stands somewhere in a buffer that is used again.
    const bytes = new Uint8Array(300).fill(0xee);
    bytes.set(request(number), 40);
    waiting.add(number, bytes, 40, { route: routeOf(number), listener: number + 7 });
    bytes.fill(0xdd);
    there.add(number);
  };
  for (let number = first; number < second; number++) add(number);
  for (let number = first; number < second; number += 3) {
    waiting.delete(number);
    there.delete(number);
  }
  waiting.delete(first); // A second time: nothing happens.
  for (let number = second; number < second + 150; number++) add(number);
  expect(new Set(waiting.ids())).toEqual(there);
  expect(waiting.size).toBe(there.size);
  for (const number of there) {
    const { message, route, listener } = waiting.get(number)!;
    expect(message.localQpn).toBe(number);
    expect(message.transactionId).toBe(BigInt(number));
    expect(message.localCommId).toBe(0xffff_ff00 + (number & 0xff));
    expect([...message.privateData.subarray(0, 2)]).toEqual([number & 0xff, number >> 8]);
    expect(route).toEqual(routeOf(number));
    expect(listener).toBe(number + 7);
  }
  expect(waiting.has(first)).toBe(false);
  expect(waiting.get(first)).toBeUndefined();
});

test('a request that was handed out does not change when its place is reused', () => {
  const waiting = new WaitingRequests();
  waiting.add(1, request(1), 0, { route: routeOf(1), listener: 1 });
  const { message, route } = waiting.get(1)!;
  waiting.delete(1);
  waiting.add(2, request(2), 0, { route: routeOf(2), listener: 1 });
  expect(message.localQpn).toBe(1);
  expect(message.privateData[0]).toBe(1);
  expect(route).toEqual(routeOf(1));
});
