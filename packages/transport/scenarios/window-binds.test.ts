/** Binds and local invalidations, each that is refused and its nearest neighbour that is not (IBTA vol 1 §10.6.7.2, ibv_bind_mw(3)). */
import { beforeEach, describe, expect, test } from 'vitest';
import { Access, type MrCreated, type MwType, SendWqe } from '../src/index.ts';
import { ByHand } from '../testing/by-hand.ts';
import type { Side } from '../testing/pair.ts';

const FAILS = 'MW_BIND_ERR';
let hand: ByHand;
let side: Side;
let mr: MrCreated;

beforeEach(() => {
  hand = new ByHand();
  ({ side } = hand);
  mr = side.register(new ArrayBuffer(4096), Access.LOCAL_WRITE | Access.MW_BIND);
});

interface BindInit {
  type?: MwType;
  handle?: number;
  rkey?: number;
  region?: MrCreated;
  offset?: number;
  length?: number;
  /** Upper word of the length. */
  high?: number;
  access?: number;
}

/** Binds a new window, or that of `handle` and `rkey`, on a queue pair that works; its status. */
function bind(init: BindInit = {}): string {
  const { type = 2, region = mr, offset = 0, length = 64, high = 0, access = Access.REMOTE_READ } = init;
  const made = init.handle === undefined ? side.adapter.allocMw(side.pd, type) : undefined;
  const window = init.handle ?? made!.handle;
  const rkey = init.rkey ?? (made!.rkey ^ 1) >>> 0;
  const { sq } = side;
  const w = sq.wordOf(sq.producer);
  side.post({
    opcode: 'BIND_MW',
    remote: { addr: region.addr + BigInt(offset), rkey },
    bind: { window, length, lkey: region.lkey, access },
  });
  sq.words[w + SendWqe.BIND_LENGTH_HIGH] = high;
  return status();
}

function status(): string {
  hand.out();
  const [{ status }] = side.poll();
  if (status === 'SUCCESS') return status;
  side.createQp();
  hand.connect();
  return status;
}

describe.each([1, 2] as const)('of type %i', (type) => {
  test.each<[string, BindInit, string]>([
    ['all of the region', { length: 4096 }, 'SUCCESS'],
    ['more than the region', { length: 4097 }, FAILS],
    ['more than the region by 2^32', { high: 1 }, FAILS],
    ['a place before the region', { offset: -1 }, FAILS],
    ['local rights', { access: Access.LOCAL_WRITE }, FAILS],
    ['rights to bind', { access: Access.MW_BIND }, FAILS],
    [
      'all remote rights',
      { access: Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC },
      'SUCCESS',
    ],
    ['no rights', { access: 0 }, 'SUCCESS'],
    ['from address 0', { access: Access.ZERO_BASED }, type === 2 ? 'SUCCESS' : FAILS],
  ])('%s', (_what, init, expected) => {
    expect(bind({ type, ...init })).toBe(expected);
  });

  test('a region of another PD, one that there is not, and one that windows may not be bound to', () => {
    const { adapter } = side;
    const init = { backing: 9, buffer: new ArrayBuffer(64), offset: 0, length: 64, access: Access.MW_BIND };
    const other = adapter.registerMr({ ...init, pd: adapter.allocPd() });
    expect(bind({ type, region: other })).toBe(FAILS);
    expect(bind({ type, region: { ...mr, lkey: (mr.lkey ^ 0x100) >>> 0 } })).toBe(FAILS);
    expect(bind({ type, region: side.register(new ArrayBuffer(64), Access.LOCAL_WRITE) })).toBe(FAILS);
  });

  test('a region that is read-only is opened for reads alone', () => {
    const region = side.register(new ArrayBuffer(64), Access.MW_BIND);
    for (const access of [Access.REMOTE_WRITE, Access.REMOTE_ATOMIC]) {
      expect(bind({ type, region, access })).toBe(FAILS);
    }
    expect(bind({ type, region, access: Access.REMOTE_READ })).toBe('SUCCESS');
  });

  test('a zero-based region', () => {
    const region = side.register(new ArrayBuffer(64), Access.MW_BIND | Access.ZERO_BASED);
    expect(bind({ type, region: { ...region, addr: 0n } })).toBe(type === 2 ? 'SUCCESS' : FAILS);
  });

  test('a window of another PD, and one that there is not', () => {
    const { adapter } = side;
    const other = adapter.allocMw(adapter.allocPd(), type);
    expect(bind({ handle: other.handle, rkey: (other.rkey ^ 1) >>> 0 })).toBe(FAILS);
    expect(bind({ handle: 999, rkey: 0x100 })).toBe(FAILS);
  });
});

test('a length of 0 ends a binding of type 1; type 2 can not be bound to nothing', () => {
  const { adapter, pd } = side;
  const { handle, rkey } = adapter.allocMw(pd, 1);
  const key = (by: number) => (rkey ^ by) >>> 0;
  expect(bind({ handle, rkey: key(1) })).toBe('SUCCESS');
  expect(() => adapter.deregisterMr(mr.handle)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
  expect(bind({ handle, rkey: key(2), length: 0 })).toBe('SUCCESS');
  // The key is that of the window from now on.
  expect(bind({ handle, rkey: key(2) })).toBe(FAILS);
  adapter.deregisterMr(mr.handle);
  mr = side.register(new ArrayBuffer(64), Access.MW_BIND);
  expect(bind({ type: 2, length: 0 })).toBe(FAILS);
});

test('LOCAL_INV: a window of type 2 that this queue pair bound, and no other', () => {
  const { adapter, pd } = side;
  const invalidate = (rkey: number) => {
    side.post({ opcode: 'LOCAL_INV', immediate: rkey });
    return status();
  };
  const first = adapter.allocMw(pd, 1);
  const second = adapter.allocMw(pd, 2);
  const keys = [first, second].map(({ handle, rkey }) => {
    expect(bind({ handle, rkey: (rkey ^ 1) >>> 0 })).toBe('SUCCESS');
    return (rkey ^ 1) >>> 0;
  });
  const owner = side.qp;
  side.createQp();
  hand.connect();
  expect(invalidate(keys[0])).toBe(FAILS);
  expect(invalidate(keys[1])).toBe(FAILS);
  expect(invalidate(mr.rkey)).toBe(FAILS);
  side.use(owner);
  expect(invalidate(keys[1])).toBe('SUCCESS');
  expect(invalidate(keys[1])).toBe(FAILS);
});
