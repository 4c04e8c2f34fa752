/** `sender` and `receiver`: functions over arrays that are looked up once. */
import dgram from 'node:dgram';
import { afterEach, expect, test } from 'vitest';
import { ownPort as PORT } from '../../packages/link/testing/loopback.ts';
import { copier } from '../index.js';
import { Station } from './support.ts';

let a: Station;
let b: Station;

function open(): void {
  a = new Station('127.0.0.1', PORT);
  b = new Station('127.0.0.2', PORT);
}

afterEach(() => {
  a.close();
  b.close();
});

const senderOf = ({ port, tx }: Station) =>
  port.sender(tx.slots, tx.headers, tx.fragments, tx.regions.views, tx.regions.shared);
const receiverOf = ({ port, rx }: Station) => port.receiver(rx.slab, rx.slots, rx.sources, rx.capacity);

test('a bound batch is sent and received like any other', () => {
  open();
  const memory = new Uint8Array(64).fill(7);
  const region = a.regions.add(memory);
  const peer = a.peer('127.0.0.2', PORT);
  const send = senderOf(a);
  const receive = receiverOf(b);
  expect(receive()).toBe(0);
  for (let round = 0; round < 3; round++) {
    a.tx.clear();
    a.add({ peer, psn: round, fragments: [[region, 0, 64]] });
    a.add({ peer, psn: round });
    expect(send(0, 2)).toBe(2);
    expect(receive()).toBe(2);
  }
  // Memory of a region is looked up anew: this one is taken away.
  structuredClone(memory.buffer, { transfer: [memory.buffer] });
  expect(send(0, 2)).toBe(2);
  expect(a.tx.slots[10]).toBe(14);
  expect(receive()).toBe(1);
});

test('the view of the only region may be passed, and is read in place of the one in the list', () => {
  open();
  const other = a.regions.add(new Uint8Array(64).fill(1));
  const region = a.regions.add(new Uint8Array(64).fill(2));
  const peer = a.peer('127.0.0.2', PORT);
  const send = senderOf(a);
  const sent = (regions: number[], view: unknown) => {
    a.tx.clear();
    for (const index of regions) a.add({ peer, fragments: [[index, 0, 64]] });
    expect((send as (...args: unknown[]) => number)(0, regions.length, view)).toBe(regions.length);
    return b.receive().map(({ payload }) => payload[0]);
  };
  const view = new Uint8Array(64).fill(3);
  expect(sent([region], view)).toEqual([3]);
  expect(sent([region, region], view)).toEqual([3, 3]);
  expect(sent([other, region], view)).toEqual([1, 2]);
  // Memory that is too short or was taken away is not read, nor is anything else.
  expect(sent([region], view.subarray(1))).toEqual([]);
  structuredClone(view.buffer, { transfer: [view.buffer] });
  for (const none of [view, undefined, {}, 7]) expect(sent([region], none)).toEqual([]);
  expect(a.tx.slots[10]).toBe(14);
});

test('a caller that asks for one datagram gets one, and hears whether there may be more', async () => {
  open();
  const time = new Float64Array(new SharedArrayBuffer(16));
  b.port.setClock(time);
  const receive = receiverOf(b);
  const toSend = senderOf(a);
  const asked = (one: number) => {
    time[1] = one;
    return [receive(), time[1]];
  };
  const peer = a.peer('127.0.0.2', PORT);
  const send = () => {
    a.tx.clear();
    for (let psn = 0; psn < 3; psn++) {
      // A traffic class of its own: no GSO message.
      a.add({ peer, psn, trafficClass: 4 * psn });
    }
    expect(toSend(0, 3)).toBe(3);
  };
  expect(asked(2)).toEqual([0, 0]);
  send();
  expect(asked(2)).toEqual([1, 1]);
  expect(asked(1)).toEqual([2, 0]);
  // Of a datagram too short for a packet nothing is to be seen: the next one is taken.
  const stranger = dgram.createSocket('udp4');
  await new Promise((sent) => {
    stranger.send(new Uint8Array(3), PORT, '127.0.0.2', sent);
  });
  stranger.close();
  send();
  expect(asked(2)).toEqual([3, 0]);
  expect(b.port.stats()).toMatchObject({ runts: 1, rxPackets: 6 });
});

test('a bound copy copies like any other, and finds the memory of regions anew', () => {
  const shared = (bytes: number) => new SharedArrayBuffer(bytes);
  const slab = new Uint8Array(shared(16)).fill(7);
  const list = new Uint32Array(shared(40));
  list.set([4, 0, 1, 0, 4, 0, 1, 0, 0, 16]);
  const views = [new Uint8Array(8), new Uint8Array(16)];
  const copy = copier(slab, views, list);
  expect(copy(2)).toBe(2);
  expect(views.map((view) => [...view])).toEqual([[0, 7, 7, 7, 7, 0, 0, 0], new Array(16).fill(7)]);
  views[1] = new Uint8Array(15);
  expect(copy(2)).toBe(1);
  structuredClone(views[0].buffer, { transfer: [views[0].buffer] });
  expect(copy(2)).toBe(0);
  expect(() => copy(3)).toThrow(RangeError);
  expect(() => copier(new Uint8Array(16), views, list)).toThrow(TypeError);
  expect(() => copier(slab, views, new Uint32Array(10))).toThrow(TypeError);
  expect(() => copier(slab, {} as never, list)).toThrow(TypeError);
});

test('refuses arrays that could be taken away, wrong counts and a closed port', () => {
  open();
  const { port, tx, rx } = a;
  const plain = new Uint8Array(64);
  expect(() => port.receiver(plain, rx.slots, rx.sources, rx.capacity)).toThrow(TypeError);
  expect(() => port.receiver(rx.slab, rx.slots, rx.sources, rx.capacity + 1)).toThrow(RangeError);
  expect(() => port.sender(tx.slots, plain, tx.fragments, [], tx.regions.shared)).toThrow(TypeError);
  expect(() => port.sender(tx.slots, tx.headers, tx.fragments, 0 as never, tx.regions.shared)).toThrow(
    TypeError,
  );
  const send = senderOf(a);
  const receive = receiverOf(a);
  expect(() => send(0, tx.capacity + 1)).toThrow(RangeError);
  expect(() => send(1, 0)).toThrow(RangeError);
  expect(() => (send as (...none: unknown[]) => number)()).toThrow(TypeError);
  port.close();
  const closed = { code: 'ERR_ROCE_PORT_CLOSED' };
  expect(() => send(0, 0)).toThrow(expect.objectContaining(closed));
  expect(() => receive()).toThrow(expect.objectContaining(closed));
  expect(() => receiverOf(a)).toThrow(expect.objectContaining(closed));
});

test('a getter among the views that closes the port ends the call', () => {
  open();
  const peer = a.peer('127.0.0.2', PORT);
  const views = [new Uint8Array(64)];
  Object.defineProperty(views, 0, {
    get() {
      a.port.close();
      return new Uint8Array(64);
    },
  });
  const { slots, headers, fragments, regions } = a.tx;
  const send = a.port.sender(slots, headers, fragments, views, regions.shared);
  a.add({ peer, fragments: [[0, 0, 64]] });
  expect(() => send(0, 1)).toThrow(expect.objectContaining({ code: 'ERR_ROCE_PORT_CLOSED' }));
});
