/** READs and atomics that a responder remembers, by PSN, for as long as these are duplicates (IBTA vol 1 §9.7.5.1.2, §9.7.4.1.1). */
import { encodeReth, Opcode, psnAdd } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import type { InboundPacket } from '../inbound.ts';
import { ResponderResources } from './resources.ts';

const MTU = 1024;
const DUPLICATE_REGION = 1 << 23;
const READ = Opcode.RC_RDMA_READ_REQUEST;
const ADD = Opcode.RC_FETCH_ADD;
const AT = 4;
const OFFSETS = { reth: 12, atomicEth: 12 };
const ADDRESS = 0x1_ffff_fc00n;

/** A READ request, or the remembered fields of an atomic. */
function request(psn: number, init: { opcode?: number; va?: bigint; rkey?: number; length?: number } = {}) {
  const { opcode = READ, va = ADDRESS, rkey = 7, length = MTU } = init;
  const slab = new Uint8Array(64);
  encodeReth(slab, AT + OFFSETS.reth, { va, rkey, length });
  return {
    info: { opcode, offsets: OFFSETS },
    slab,
    at: AT,
    psn: psn & 0xff_ffff,
  } as unknown as InboundPacket;
}

function setUp(capacity = 4) {
  const resources = new ResponderResources();
  resources.resize(capacity);
  const read = (psn: number, packets = 1) =>
    resources.rememberRead(request(psn, { length: packets * MTU }), packets);
  const add = (psn: number, high = 0, low = 0) =>
    resources.rememberAtomic(request(psn, { opcode: ADD }), high, low);
  /** Which of these PSNs are found, if `expected` is next. */
  const found = (psns: number[], expected: number) =>
    psns.filter((psn) => resources.find(psn & 0xff_ffff, expected & 0xff_ffff) >= 0);
  return { resources, read, add, found };
}

const range = (first: number, end: number) => Array.from({ length: end - first }, (_, i) => first + i);

test.each([10, 0xff_fffd])('a request is found by each of its PSNs, from %i on', (first) => {
  const { read, add, found, resources } = setUp();
  read(first, 3);
  add(first + 3);
  read(first + 6, 2);
  expect(resources.count).toBe(3);
  const inside = range(first, first + 4).concat(first + 6, first + 7);
  expect(found(range(first - 2, first + 9), first + 8)).toEqual(inside);
  expect(resources.fault((first + 8) & 0xff_ffff)).toBeUndefined();
});

test('a request that is found has its opcode, and an atomic its answer', () => {
  const { resources, read, add } = setUp();
  add(5, 0xffff_ffff, 1);
  read(6);
  const atomic = resources.find(5, 7);
  expect([resources.had(atomic, ADD), resources.had(atomic, READ)]).toEqual([true, false]);
  expect([resources.valueHigh(atomic), resources.valueLow(atomic)]).toEqual([0xffff_ffff, 1]);
  expect(resources.had(resources.find(6, 7), READ)).toBe(true);
});

test.each([1, 2, 5])('the last %i are remembered, and those before are forgotten', (capacity) => {
  const { resources, read, found } = setUp(capacity);
  for (let psn = 0; psn < 23; psn++) {
    read(psn);
    const kept = Math.min(psn + 1, capacity);
    expect(resources.count).toBe(kept);
    expect(found(range(0, 30), psn + 1)).toEqual(range(psn + 1 - kept, psn + 1));
    expect(resources.fault(psn + 1)).toBeUndefined();
  }
});

describe('another capacity', () => {
  test.each([
    [8, 4, [19, 20, 21, 22]],
    [4, 4, [19, 20, 21, 22]],
    [3, 3, [20, 21, 22]],
    [1, 1, [22]],
    [0, 0, []],
  ])('of %i keeps the newest %i', (capacity, count, psns) => {
    const { resources, read, found } = setUp(4);
    for (const psn of range(17, 23)) read(psn);
    resources.resize(capacity);
    expect([resources.capacity, resources.count]).toEqual([capacity, count]);
    expect(found(range(0, 30), 23)).toEqual(psns);
    if (capacity === 0) return;
    for (let psn = 23; psn < 40; psn++) {
      read(psn);
      const kept = Math.min(capacity, count + psn - 22);
      expect(found(range(0, 50), psn + 1)).toEqual(range(psn + 1 - kept, psn + 1));
    }
  });
});

describe('a READ that comes again', () => {
  const covers = (psn: number, init: Parameters<typeof request>[1]) => {
    const { resources, read } = setUp();
    read(10, 4);
    return resources.covers(resources.find(psn, 14), request(psn, init), MTU);
  };

  test.each([
    ['whole', 10, { length: 4 * MTU }],
    ['from its second response on, across 4 GiB', 11, { va: ADDRESS + 1024n, length: 3 * MTU }],
    ['from its last response on', 13, { va: ADDRESS + 3072n, length: MTU }],
    ['up to an earlier end', 11, { va: ADDRESS + 1024n, length: MTU }],
  ])('%s is that READ', (_, psn, init) => {
    expect(covers(psn, init)).toBe(true);
  });

  test.each([
    ['with another key', 10, { rkey: 8, length: 4 * MTU }],
    ['for more', 10, { length: 4 * MTU + 1 }],
    ['from another address', 10, { va: ADDRESS + 1n, length: MTU }],
    ['from an address 4 GiB further', 10, { va: ADDRESS + 0x1_0000_0000n, length: MTU }],
    ['from an address that does not fit its PSN', 11, { va: ADDRESS, length: MTU }],
    ['beyond its end', 13, { va: ADDRESS + 3072n, length: MTU + 1 }],
  ])('%s is another', (_, psn, init) => {
    expect(covers(psn, init)).toBe(false);
  });
});

describe('an ACK for a duplicate goes', () => {
  const limit = (psn: number, latest: number, ...reads: number[]) => {
    const { resources, read } = setUp();
    for (const at of reads) read(at, 2);
    return resources.acknowledgeable(psn & 0xff_ffff, latest & 0xff_ffff);
  };

  test('up to the latest PSN without READs', () => {
    expect(limit(5, 20)).toBe(20);
  });

  test.each([0, 0x10, 0xff_fff8])(
    'not past a READ behind it, whose answer may be lost; from %i on',
    (base) => {
      const at = (offset: number) => psnAdd(base, offset);
      expect(limit(at(5), at(20), at(10))).toBe(at(9));
      expect(limit(at(5), at(20), at(10), at(14))).toBe(at(9));
      expect(limit(at(12), at(20), at(10), at(14))).toBe(at(13));
      // A READ before it was answered, or the duplicate would not have been sent.
      expect(limit(at(17), at(20), at(10), at(14))).toBe(at(20));
      expect(limit(at(14), at(20), at(10), at(14))).toBe(at(20));
      expect(limit(at(5), at(6), at(7))).toBe(at(6));
      expect(limit(at(5), at(6), at(6))).toBe(at(5));
    },
  );
});

describe('requests expire', () => {
  test('2^23 PSNs after their last one', () => {
    const { found, read } = setUp();
    read(10, 2);
    expect(found([10, 11], 11 + DUPLICATE_REGION)).toEqual([10, 11]);
    expect(found([10, 11], 12 + DUPLICATE_REGION)).toEqual([]);
  });

  test('the oldest first, once the expected PSN is that far ahead', () => {
    const { resources, read } = setUp();
    read(10);
    read(12);
    resources.expire(100, DUPLICATE_REGION - 90);
    expect(resources.count).toBe(2);
    resources.expire(100, DUPLICATE_REGION - 89);
    expect(resources.count).toBe(1);
    resources.expire(12 + DUPLICATE_REGION, 0);
    expect(resources.count).toBe(1);
    resources.expire(13 + DUPLICATE_REGION, 0);
    expect(resources.count).toBe(0);
    resources.expire(14 + DUPLICATE_REGION, 0);
    expect(resources.count).toBe(0);
  });

  test('as single packets pass, well before their PSNs come again', () => {
    const { resources, read } = setUp();
    read(10);
    const step = 1 << 22;
    for (const end of [step, 2 * step]) {
      resources.moves(end - 1, end);
      expect(resources.count).toBe(1);
    }
    resources.moves(3 * step - 1, 3 * step);
    expect(resources.count).toBe(0);
  });
});

test('the check sees requests that are out of order', () => {
  const { resources, read } = setUp();
  read(10);
  read(11);
  expect(resources.fault(12)).toBeUndefined();
  read(10);
  expect(resources.fault(12)).toMatch(/out of order/);
});
