/** Keys, addresses and lifetimes of regions and windows (ibv_reg_mr(3), ibv_rereg_mr(3), IBTA vol 1 §10.6). */
import { createRandom } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { RegionTable } from '../src/batch.ts';
import { Access } from '../src/constants.ts';
import { DEVICE_LIMITS, type MrInit } from '../src/control.ts';
import { Memory } from '../src/memory.ts';
import type { MemoryRegion } from '../src/region.ts';

const BUSY = expect.objectContaining({ code: 'ERR_ROCE_BUSY', errno: 'EBUSY' });
const INVALID = (attribute: string) => expect.objectContaining({ errno: 'EINVAL', attribute });

function make(random = createRandom(5).next, limits = {}) {
  const regions = new RegionTable();
  const closed: MemoryRegion[] = [];
  const memory = new Memory(regions, random, { ...DEVICE_LIMITS, ...limits }, (mr) => closed.push(mr));
  const pd = memory.allocPd();
  const buffer = new ArrayBuffer(8192);
  const init = (more: Partial<MrInit> = {}): MrInit => ({
    pd,
    backing: 1,
    buffer,
    offset: 0,
    length: 4096,
    access: Access.LOCAL_WRITE | Access.MW_BIND,
    ...more,
  });
  const used = () => regions.views.filter(Boolean).length;
  return { memory, regions, closed, pd, buffer, init, used };
}

/** Numbers in this order, then none. */
function numbers(...list: number[]): () => number {
  return () => {
    const next = list.shift();
    if (next === undefined) throw new Error('no more numbers');
    return next;
  };
}

describe('a key', () => {
  test('opens its region to work requests and to peers, and no other key does', () => {
    const { memory, init } = make();
    const { lkey, rkey } = memory.register(init());
    expect(memory.byLkey(lkey)).toBe(memory.byRkey(rkey));
    expect(memory.byRkey(rkey)).toMatchObject({ key: rkey, length: 4096, valid: true });
    for (const other of [lkey ^ 1, lkey ^ 0x80, lkey ^ 0x100].map((key) => key >>> 0)) {
      expect(memory.byLkey(other)).toBeUndefined();
      expect(memory.byRkey(other)).toBeUndefined();
    }
  });

  test('has an index of its own, not 0, and not one that was lately in use', () => {
    // The second and third are for the address of the buffer.
    const drawn = [0x1234_5678, 5, 7, 0x88, 0x1234_56ff, 0x9900_0000, 0x1234_5611, 0x9900_00ab, 0xab_cd01];
    const { memory, init } = make(numbers(...drawn));
    const first = memory.register(init());
    expect(first.rkey).toBe(0x1234_5678);
    const window = memory.allocMw(init().pd, 1);
    expect(window.rkey).toBe(0x9900_0000);
    memory.deregister(first.handle);
    memory.deallocMw(window.handle);
    expect(memory.allocMw(init().pd, 1).rkey).toBe(0xab_cd01);
  });

  test('opens nothing once its region is deregistered', () => {
    const { memory, init, closed, used } = make();
    const { handle, lkey } = memory.register(init());
    const region = memory.byLkey(lkey)!;
    memory.deregister(handle);
    expect(memory.byLkey(lkey)).toBeUndefined();
    expect(memory.byRkey(lkey)).toBeUndefined();
    expect(region.valid).toBe(false);
    expect(closed).toEqual([region]);
    expect(used()).toBe(0);
    expect(() => memory.deregister(handle)).toThrow(INVALID('mr'));
  });
});

describe('the address of a buffer', () => {
  test.each([
    ['the least', [0, 0], 4096n],
    ['bits that make a page', [0, 1], 4096n],
    ['the lower of the two numbers', [0, 0xabcd], 0xabcd_000n],
    ['both numbers', [1, 0], 0x1_0000_000n],
  ])('is a page, never 0: %s', (_what, [high, low], base) => {
    const { memory, init } = make(numbers(0x100, high, low));
    expect(memory.register(init()).addr).toBe(base);
  });

  test('lies in the lower half of the address space, with all of the buffer', () => {
    for (const random of [() => 0xffff_ffff, createRandom(1).next, createRandom(2).next]) {
      let calls = 0;
      const { memory, init } = make(() => (calls++ === 0 ? 0x100 : random()));
      const { addr } = memory.register(init({ length: 8192 }));
      expect(addr % 4096n).toBe(0n);
      expect(addr + 8192n).toBeLessThanOrEqual(1n << 63n);
    }
  });

  test('is that of its offset; zero-based, peers name the first byte 0', () => {
    const { memory, init } = make();
    const all = memory.register(init());
    const part = memory.register(init({ offset: 100, access: Access.ZERO_BASED }));
    expect(part.addr).toBe(all.addr + 100n);
    expect(part.iova).toBe(0n);
    expect(memory.byRkey(part.rkey)!.locate(0, 8, 8)).toBe(108);
    expect(all.iova).toBe(all.addr);
  });
});

describe('a region', () => {
  test.each<[string, Partial<MrInit>]>([
    ['offset', { offset: -1 }],
    ['offset', { offset: 0.5 }],
    ['length', { length: -1 }],
    ['length', { length: 0.5 }],
    ['length', { length: 4097 }],
    ['length', { offset: 8192, length: 1 }],
    ['iova', { iova: -1n }],
    ['iova', { iova: (1n << 64n) - 4095n }],
    ['iova', { iova: 4096n, access: Access.ZERO_BASED }],
    ['access', { access: Access.REMOTE_ATOMIC }],
    ['access', { access: 64 }],
    ['pd', { pd: 999 }],
  ])('is refused for its %s, and nothing is held', (attribute, more) => {
    const { memory, pd, init, used } = make(undefined, { maxMrSize: 4096 });
    expect(() => memory.register(init(more))).toThrow(INVALID(attribute));
    expect(used()).toBe(0);
    memory.deallocPd(pd);
  });

  test.each<[string, Partial<MrInit>]>([
    ['of nothing', { length: 0 }],
    ['at the end of its buffer', { offset: 4096 }],
    ['of nothing at the end of its buffer', { offset: 8192, length: 0 }],
    ['at address 0', { iova: 0n }],
    ['zero-based at address 0', { iova: 0n, access: Access.ZERO_BASED }],
    ['that ends with the address space', { iova: (1n << 64n) - 4096n }],
    ['of the most bytes', { length: 4096 }],
  ])('%s is registered', (_what, more) => {
    const { memory, init } = make(undefined, { maxMrSize: 4096 });
    const { lkey } = memory.register(init(more));
    expect(memory.byLkey(lkey)!.valid).toBe(true);
  });

  test('of a growable buffer is refused, as of a resizable one', () => {
    const { memory, init } = make();
    const buffer = Reflect.construct(SharedArrayBuffer, [8192, { maxByteLength: 16_384 }]);
    expect(() => memory.register(init({ buffer }))).toThrow(INVALID('buffer'));
  });

  test('keeps its buffer in the table as long as one region is over it', () => {
    const { memory, init, used } = make();
    const first = memory.register(init());
    const second = memory.register(init({ offset: 4096 }));
    const other = memory.register(init({ backing: 2, buffer: new ArrayBuffer(4096) }));
    expect(used()).toBe(2);
    memory.deregister(first.handle);
    expect(used()).toBe(2);
    memory.deregister(second.handle);
    expect(used()).toBe(1);
    memory.deregister(other.handle);
    expect(used()).toBe(0);
  });
});

describe('a region that is registered anew', () => {
  test('with its keys: another range and other rights under the same', () => {
    const { memory, init, closed } = make();
    const before = memory.register(init());
    const old = memory.byLkey(before.lkey)!;
    const after = memory.reregister(before.handle, init({ offset: 64, length: 32, access: 0 }), false);
    expect(after).toMatchObject({ handle: before.handle, lkey: before.lkey, addr: before.addr + 64n });
    expect(memory.byLkey(after.lkey)).toMatchObject({ length: 32, access: 0, valid: true });
    expect(old.valid).toBe(false);
    expect(closed).toEqual([old]);
  });

  test('with new keys: the old ones open nothing, and are not given out soon', () => {
    const { memory, init } = make(numbers(0x111, 0, 5, 0x122, 0x222));
    const before = memory.register(init());
    expect(before.rkey).toBe(0x111);
    const after = memory.reregister(before.handle, init(), true);
    expect(after.rkey).toBe(0x222);
    expect(memory.byRkey(0x111)).toBeUndefined();
    expect(after.addr).toBe(before.addr);
  });

  test('in another PD lets go of the first one', () => {
    const { memory, pd, init } = make();
    const other = memory.allocPd();
    const { handle, lkey } = memory.register(init());
    memory.reregister(handle, init({ pd: other }), false);
    memory.deallocPd(pd);
    expect(() => memory.deallocPd(other)).toThrow(BUSY);
    expect(memory.byLkey(lkey)!.pd).toBe(other);
    memory.deregister(handle);
    memory.deallocPd(other);
  });

  test('over another buffer lets go of the first one', () => {
    const { memory, init, used } = make();
    const { handle, addr } = memory.register(init());
    const after = memory.reregister(handle, init({ backing: 2, buffer: new ArrayBuffer(4096) }), false);
    expect(after.addr).not.toBe(addr);
    expect(used()).toBe(1);
    memory.deregister(handle);
    expect(used()).toBe(0);
  });

  test('over the same buffer lets go of it with its last region', () => {
    const { memory, init, used } = make();
    const { handle } = memory.register(init());
    memory.reregister(handle, init({ offset: 8 }), false);
    expect(used()).toBe(1);
    memory.deregister(handle);
    expect(used()).toBe(0);
  });

  test('with what can’t be is as it was', () => {
    const { memory, pd, init } = make();
    const { handle, lkey } = memory.register(init());
    expect(() => memory.reregister(handle, init({ offset: -1 }), true)).toThrow(INVALID('offset'));
    expect(() => memory.reregister(999, init(), true)).toThrow(INVALID('mr'));
    expect(memory.byLkey(lkey)!.valid).toBe(true);
    memory.deregister(handle);
    memory.deallocPd(pd);
  });
});

describe('a window', () => {
  /** A window of this type, bound by queue pair `qpn` to 64 bytes of a region. */
  function bound(type: 1 | 2, qpn = 0) {
    const set = make();
    const { memory, pd, init } = set;
    const mr = memory.register(init());
    const region = memory.byLkey(mr.lkey)!;
    const { handle, rkey } = memory.allocMw(pd, type);
    const window = memory.window(handle)!;
    const range = { start: mr.addr + 64n, offset: 64, length: 64, access: Access.REMOTE_READ, qpn };
    const bind = (key = rkey ^ 1) => memory.bind(window, region, key >>> 0, range);
    bind();
    return { ...set, mr, region, window, handle, rkey, bind, key: (rkey ^ 1) >>> 0 };
  }

  test.each([1, 2] as const)('of type %i keeps its region busy while it is bound', (type) => {
    const { memory, mr, init, window, region, closed, key } = bound(type);
    expect(region.windows).toBe(1);
    expect(() => memory.deregister(mr.handle)).toThrow(BUSY);
    expect(() => memory.reregister(mr.handle, init(), false)).toThrow(BUSY);
    const opened = memory.byRkey(key)!;
    expect(memory.byLkey(key)).toBeUndefined();
    memory.unbind(window);
    expect(memory.byRkey(key)).toBeUndefined();
    expect([opened.valid, closed]).toEqual([false, [opened]]);
    memory.unbind(window);
    expect([region.windows, closed.length]).toEqual([0, 1]);
    memory.deregister(mr.handle);
  });

  test('that is bound anew opens under the new key alone', () => {
    const { memory, bind, key, rkey, region } = bound(1);
    bind(rkey ^ 2);
    expect(memory.byRkey(key)).toBeUndefined();
    expect(memory.byRkey((rkey ^ 2) >>> 0)).toMatchObject({ length: 64, qpn: -1 });
    expect(region.windows).toBe(1);
  });

  test.each([0, 7])('of type 2 is of the queue pair that bound it, and ends with it: %i', (qpn) => {
    const { memory, key } = bound(2, qpn);
    expect(memory.byRkey(key)).toMatchObject({ qpn });
    memory.unbindQp(qpn + 1);
    expect(memory.byRkey(key)).toBeDefined();
    memory.unbindQp(qpn);
    expect(memory.byRkey(key)).toBeUndefined();
  });

  test('of type 1 does not end with the queue pair that bound it', () => {
    const { memory, key } = bound(1, 7);
    memory.unbindQp(7);
    expect(memory.byRkey(key)).toMatchObject({ qpn: -1 });
  });

  test('is one of several of a queue pair: each ends with it once', () => {
    const { memory, pd, region, window, key, closed } = bound(2, 7);
    const other = memory.window(memory.allocMw(pd, 2).handle)!;
    const otherKey = (other.key ^ 1) >>> 0;
    memory.bind(other, region, otherKey, { start: 0n, offset: 0, length: 8, access: 0, qpn: 7 });
    memory.unbind(window);
    expect(memory.byRkey(otherKey)).toBeDefined();
    memory.unbindQp(7);
    expect([memory.byRkey(key), memory.byRkey(otherKey)]).toEqual([undefined, undefined]);
    expect(closed).toHaveLength(2);
    expect(region.windows).toBe(0);
  });

  test('that is deallocated opens nothing, and its index is not given out soon', () => {
    const { memory, pd, handle, key, mr } = bound(1);
    memory.deallocMw(handle);
    expect(memory.byRkey(key)).toBeUndefined();
    expect(memory.window(handle)).toBeUndefined();
    expect(() => memory.deallocMw(handle)).toThrow(INVALID('mw'));
    memory.deregister(mr.handle);
    memory.deallocPd(pd);
  });
});
