/** Memory windows: binding, what they open, invalidation (IBTA vol 1 §10.6.7). */
import { beforeEach, describe, expect, test } from 'vitest';
import { Pair } from '../testing/pair.ts';
import { Access, type MrCreated, type MwCreated, type MwType, SendFlags, WcFlags } from './index.ts';

const RIGHTS = Access.REMOTE_WRITE | Access.REMOTE_READ;

let pair: Pair;
let local: MrCreated;
/** Right's region, open to nobody but through windows. */
let region: MrCreated;
const bytes = new Uint8Array(8192);

beforeEach(() => {
  pair = new Pair({ attr: { retryCnt: 2 } });
  local = pair.left.register(new Uint8Array(8192).fill(0xab).buffer);
  region = pair.right.register(bytes.fill(0).buffer, Access.LOCAL_WRITE | Access.MW_BIND);
});

interface BindInit {
  offset?: number;
  length?: number;
  key?: number;
  access?: number;
  mr?: MrCreated;
}

/** Posts the bind on the right; returns the key that it binds. */
function bind(mw: MwCreated, init: BindInit = {}): number {
  const { offset = 1024, length = 1024, key = nextKey(mw.rkey), access = RIGHTS, mr = region } = init;
  pair.right.post({
    wrId: 100,
    opcode: 'BIND_MW',
    remote: { addr: mr.addr + BigInt(offset), rkey: key },
    bind: { window: mw.handle, length, lkey: mr.lkey, access },
  });
  return key;
}

/** The next of the 256 keys that a window has. */
const nextKey = (key: number) => ((key & 0xffff_ff00) | ((key + 1) & 0xff)) >>> 0;
const alloc = (type: MwType) => pair.right.adapter.allocMw(pair.right.pd, type);
const statuses = (side: 'left' | 'right') => pair[side].poll().map(({ status }) => status);

function write(rkey: number, addr = region.addr + 1024n, length = 64): string {
  pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length }], remote: { addr, rkey } });
  pair.run();
  return statuses('left')[0];
}

describe.each([1, 2] as const)('type %i', (type) => {
  test('opens its range, for its rights, once it is bound', () => {
    const mw = alloc(type);
    const key = bind(mw);
    pair.run();
    expect(statuses('right')).toEqual(['SUCCESS']);
    expect(write(key)).toBe('SUCCESS');
    expect(bytes[1024]).toBe(0xab);
    expect(write(key, region.addr + 1984n, 64)).toBe('SUCCESS');
  });

  test.each([
    ['before it', -1n, 64, {}],
    ['across its end', 961n, 64, {}],
    ['without the right', 0n, 64, { access: Access.REMOTE_READ }],
  ])('an access %s is refused with 0x62', (_name, offset, length, init) => {
    const key = bind(alloc(type), init);
    pair.run();
    expect(write(key, region.addr + 1024n + offset, length)).toBe('REM_ACCESS_ERR');
    expect(bytes.every((byte) => byte === 0)).toBe(true);
  });

  test('a window that is not bound opens nothing, nor does its old key', () => {
    const mw = alloc(type);
    expect(write(mw.rkey)).toBe('REM_ACCESS_ERR');
  });

  test('its key is no lkey', () => {
    const key = bind(alloc(type));
    pair.run();
    pair.right.poll();
    pair.right.post({ opcode: 'SEND', sge: [{ mr: { ...region, lkey: key }, offset: 1024, length: 8 }] });
    pair.run();
    expect(statuses('right')).toEqual(['LOC_PROT_ERR']);
  });

  test('its region can’t go while it is bound; deallocating the window lets go', () => {
    const mw = alloc(type);
    const key = bind(mw);
    pair.run();
    const { adapter } = pair.right;
    expect(() => adapter.deregisterMr(region.handle)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
    adapter.deallocMw(mw.handle);
    expect(write(key)).toBe('REM_ACCESS_ERR');
    adapter.deregisterMr(region.handle);
  });

  test.each<[string, BindInit]>([
    ['past the region', { offset: 8000, length: 193 }],
    ['with the key that it has', { key: 0 }],
    ['with a key of another index', { key: 1 }],
    ['with LOCAL_WRITE', { access: Access.LOCAL_WRITE }],
  ])('a bind %s fails, and with it the queue pair', (_name, init) => {
    const mw = alloc(type);
    const key = init.key === 0 ? mw.rkey : init.key === 1 ? (mw.rkey ^ 0x100) >>> 0 : nextKey(mw.rkey);
    bind(mw, { ...init, key });
    pair.run();
    expect(statuses('right')).toEqual(['MW_BIND_ERR']);
    expect(pair.right.adapter.queryQp(pair.right.qp.qpn).attr.qpState).toBe('ERR');
  });

  test('a region without MW_BIND, or without LOCAL_WRITE for a window that writes', () => {
    const { right } = pair;
    const closed = right.register(new ArrayBuffer(4096), Access.LOCAL_WRITE);
    bind(alloc(type), { mr: closed });
    pair.run();
    expect(statuses('right')).toEqual(['MW_BIND_ERR']);
    right.createQp();
    pair.left.createQp();
    pair.connect();
    const readable = right.register(new ArrayBuffer(4096), Access.MW_BIND);
    bind(alloc(type), { mr: readable });
    pair.run();
    expect(statuses('right')).toEqual(['MW_BIND_ERR']);
  });

  test('binds in the order of the queue, and not again when packets after it are retransmitted', () => {
    const mw = alloc(type);
    const { left, right } = pair;
    const inbox = left.register(new ArrayBuffer(64));
    for (const wrId of [1, 2]) left.postRecv(wrId, [{ mr: inbox, length: 64 }]);
    let n = 0;
    pair.fault = (packet) => (n++ === 0 ? [] : [{ packet, delay: 0 }]);
    right.post({ wrId: 1, opcode: 'SEND', sge: [{ mr: region, length: 8 }] });
    const key = bind(mw);
    right.post({ wrId: 2, opcode: 'SEND', sge: [{ mr: region, length: 8 }] });
    pair.run();
    expect(right.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
      [1, 'SUCCESS'],
      [100, 'SUCCESS'],
      [2, 'SUCCESS'],
    ]);
    expect(write(key)).toBe('SUCCESS');
  });
});

describe('type 1', () => {
  test('is bound anew at will, and unbound with a length of 0', () => {
    const mw = alloc(1);
    const first = bind(mw);
    const second = bind(mw, { offset: 0, key: nextKey(first) });
    pair.run();
    expect(statuses('right')).toEqual(['SUCCESS', 'SUCCESS']);
    expect(write(second, region.addr)).toBe('SUCCESS');
    const third = bind(mw, { length: 0, key: nextKey(second) });
    pair.run();
    expect(statuses('right')).toEqual(['SUCCESS']);
    pair.right.adapter.deregisterMr(region.handle);
    expect(write(third)).toBe('REM_ACCESS_ERR');
  });
});

describe('type 2', () => {
  test('has to be invalidated before it is bound anew', () => {
    const mw = alloc(2);
    const first = bind(mw);
    pair.run();
    pair.right.post({ wrId: 7, opcode: 'LOCAL_INV', immediate: first });
    const second = bind(mw, { key: nextKey(first) });
    pair.run();
    expect(statuses('right')).toEqual(['SUCCESS', 'SUCCESS', 'SUCCESS']);
    expect(write(second)).toBe('SUCCESS');
    bind(mw, { key: nextKey(second) });
    pair.run();
    expect(statuses('right')).toEqual(['MW_BIND_ERR']);
  });

  test('after LOCAL_INV its key opens nothing', () => {
    const key = bind(alloc(2));
    pair.right.post({ opcode: 'LOCAL_INV', immediate: key });
    pair.run();
    expect(write(key)).toBe('REM_ACCESS_ERR');
  });

  test('is for the queue pair that bound it alone', () => {
    const key = bind(alloc(2));
    pair.run();
    pair.left.createQp();
    pair.right.createQp();
    pair.connect();
    expect(write(key)).toBe('REM_ACCESS_ERR');
  });

  test('ends with its queue pair', () => {
    bind(alloc(2));
    pair.run();
    const { adapter, qp } = pair.right;
    expect(() => adapter.deregisterMr(region.handle)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
    adapter.destroyQp(qp.qpn);
    expect(() => adapter.deregisterMr(region.handle)).not.toThrow();
  });

  test('zero-based: peers name its first byte 0', () => {
    const key = bind(alloc(2), { access: RIGHTS | Access.ZERO_BASED });
    pair.run();
    expect(write(key, 0n)).toBe('SUCCESS');
    expect(bytes[1024]).toBe(0xab);
    expect(write(key, 1000n)).toBe('REM_ACCESS_ERR');
  });

  test('SEND_WITH_INV invalidates it, and the completion has the key', () => {
    const key = bind(alloc(2));
    const inbox = pair.right.register(new ArrayBuffer(64));
    pair.right.postRecv(1, [{ mr: inbox, length: 64 }]);
    pair.left.post({ opcode: 'SEND_WITH_INV', immediate: key, sge: [{ mr: local, length: 10 }] });
    pair.run();
    expect(pair.right.poll()).toMatchObject([
      { wrId: 100, status: 'SUCCESS' },
      { wrId: 1, status: 'SUCCESS', immediate: key, flags: WcFlags.WITH_INV },
    ]);
    expect(statuses('left')).toEqual(['SUCCESS']);
    expect(write(key)).toBe('REM_ACCESS_ERR');
  });

  test.each(['a key that nobody has', 'a region', 'a type 1 window'])(
    'SEND_WITH_INV of %s is refused',
    (what) => {
      const key =
        what === 'a region' ? region.rkey : what === 'a type 1 window' ? bind(alloc(1)) : 0x1234_5600;
      const inbox = pair.right.register(new ArrayBuffer(64));
      pair.right.postRecv(1, [{ mr: inbox, length: 64 }]);
      pair.left.post({ opcode: 'SEND_WITH_INV', immediate: key, sge: [{ mr: local, length: 10 }] });
      pair.run();
      expect(statuses('left')).toEqual(['REM_ACCESS_ERR']);
      expect(pair.right.poll().find(({ wrId }) => wrId === 1)).toMatchObject({ status: 'LOC_ACCESS_ERR' });
    },
  );

  test('LOCAL_INV of a key that can’t be invalidated: MW_BIND_ERR', () => {
    pair.right.post({ opcode: 'LOCAL_INV', immediate: region.rkey });
    pair.run();
    expect(statuses('right')).toEqual(['MW_BIND_ERR']);
  });
});

test('refuses unknown types and PDs; a PD with windows is busy', () => {
  const { adapter } = pair.right;
  expect(() => adapter.allocMw(pair.right.pd, 3 as MwType)).toThrow(
    expect.objectContaining({ attribute: 'type' }),
  );
  expect(() => adapter.allocMw(999, 1)).toThrow(expect.objectContaining({ attribute: 'pd' }));
  expect(() => adapter.deallocMw(999)).toThrow(expect.objectContaining({ attribute: 'mw' }));
  const pd = adapter.allocPd();
  const mw = adapter.allocMw(pd, 2);
  expect(() => adapter.deallocPd(pd)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
  adapter.deallocMw(mw.handle);
  adapter.deallocPd(pd);
});

test('UC: a fenced LOCAL_INV waits until the link has taken what was posted before it', () => {
  pair = new Pair({ type: 'UC' });
  const { adapter } = pair.right;
  local = pair.left.register(new ArrayBuffer(64), 0xf);
  region = pair.right.register(bytes.buffer, Access.LOCAL_WRITE | Access.MW_BIND);
  const key = bind(alloc(2));
  pair.run();
  expect(statuses('right')).toEqual(['SUCCESS']);
  pair.right.post({ wrId: 1, opcode: 'RDMA_WRITE', sge: [{ mr: region, length: 64 }], remote: local });
  const flags = SendFlags.SIGNALED | SendFlags.FENCE;
  pair.right.post({ wrId: 2, opcode: 'LOCAL_INV', immediate: key, flags });
  const { tx } = pair.right;
  tx.clear();
  expect([adapter.transmit(tx), adapter.transmit(tx)]).toEqual([1, 0]);
  expect(pair.right.poll()).toEqual([]);
  adapter.sent(tx);
  expect(adapter.wantsToSend).toBe(true);
  tx.clear();
  expect(adapter.transmit(tx)).toBe(0);
  expect(pair.right.poll()).toMatchObject([
    { wrId: 1, status: 'SUCCESS' },
    { wrId: 2, status: 'SUCCESS' },
  ]);
});
