import { createRandom } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { RegionTable } from './batch.ts';
import { Access } from './constants.ts';
import { DEVICE_LIMITS } from './control.ts';
import { Memory } from './memory.ts';

function make() {
  const regions = new RegionTable();
  const memory = new Memory(regions, createRandom(12345).next, DEVICE_LIMITS);
  return { regions, memory, pd: memory.allocPd() };
}

const register = (memory: Memory, pd: number, buffer: ArrayBufferLike, more = {}) =>
  memory.register({
    pd,
    backing: 1,
    buffer,
    offset: 0,
    length: buffer.byteLength,
    access: Access.LOCAL_WRITE,
    ...more,
  });

test('regions of one buffer agree about the addresses of its bytes', () => {
  const { memory, pd, regions } = make();
  const buffer = new ArrayBuffer(8192);
  const all = register(memory, pd, buffer);
  const part = register(memory, pd, buffer, { offset: 100, length: 50 });
  expect(all.addr % 4096n).toBe(0n);
  expect(part.addr - all.addr).toBe(100n);
  expect(part.lkey).not.toBe(all.lkey);
  expect(regions.views.filter(Boolean).length).toBe(1);
  memory.deregister(all.handle);
  expect(register(memory, pd, buffer).addr).toBe(all.addr);
});

test('locate: inside, at the ends, one past, before, far away', () => {
  const { memory, pd } = make();
  const { lkey, addr } = register(memory, pd, new ArrayBuffer(8192), { offset: 100, length: 1000 });
  const mr = memory.byRkey(lkey)!;
  const at = (address: bigint, length: number) =>
    mr.locate(Number(BigInt.asUintN(64, address) >> 32n), Number(address & 0xffff_ffffn), length);
  expect(at(addr, 1000)).toBe(100);
  expect(at(addr + 999n, 1)).toBe(1099);
  expect(at(addr + 1000n, 0)).toBe(1100);
  expect(at(addr + 1n, 1000)).toBe(-1);
  expect(at(addr - 1n, 1)).toBe(-1);
  expect(at(addr + (1n << 32n), 1)).toBe(-1);
  expect(at(addr - (1n << 63n), 1)).toBe(-1);
  expect(at((1n << 64n) - 1n, 2)).toBe(-1);
});

test('an iova at the end of the address space, and across a 4 GiB line', () => {
  const { memory, pd } = make();
  const buffer = new ArrayBuffer(4096);
  const high = memory.byRkey(register(memory, pd, buffer, { iova: (1n << 64n) - 4096n }).lkey)!;
  expect(high.locate(0xffff_ffff, 0xffff_f000, 4096)).toBe(0);
  const across = memory.byRkey(register(memory, pd, buffer, { iova: (1n << 32n) - 8n }).lkey)!;
  expect(across.locate(1, 0, 8)).toBe(8);
  expect(() => register(memory, pd, buffer, { iova: (1n << 64n) - 4095n })).toThrow(/iova/);
});

test('a detached buffer has no bytes', () => {
  const { memory, pd } = make();
  const buffer = new ArrayBuffer(4096);
  const { lkey, addr } = register(memory, pd, buffer);
  structuredClone(buffer, { transfer: [buffer] });
  const mr = memory.byRkey(lkey)!;
  expect(mr.locate(Number(addr >> 32n), Number(addr & 0xffff_ffffn), 1)).toBe(-1);
});

test('a registration that is refused names its attribute', () => {
  const { memory, pd } = make();
  const buffer = new ArrayBuffer(64);
  expect(() => register(memory, pd, buffer, { access: Access.REMOTE_WRITE })).toThrow(/^access/);
  expect(() => register(memory, pd, buffer, { access: 0x4000 })).toThrow(/^access/);
  expect(() => register(memory, pd, buffer, { length: 65 })).toThrow(/^length/);
  expect(() => register(memory, pd, buffer, { offset: -1 })).toThrow(/^offset/);
  expect(() => register(memory, 99, buffer)).toThrow(/^pd/);
  expect(() => register(memory, pd, Reflect.construct(ArrayBuffer, [8, { maxByteLength: 16 }]))).toThrow(
    /^buffer/,
  );
  const { handle } = register(memory, pd, buffer);
  expect(() => memory.deallocPd(pd)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
  memory.deregister(handle);
  memory.deallocPd(pd);
  expect(() => memory.deregister(handle)).toThrow(/^mr/);
});
