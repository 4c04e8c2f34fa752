import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSharedFile, mapSharedFile, unmapSharedFile } from '@node-roce/dgram-native';
import { afterEach, describe, expect, test } from 'vitest';

declare const WebAssembly: {
  Memory: new (options: { shared: true; initial: number; maximum: number }) => { buffer: SharedArrayBuffer };
};

const open: number[] = [];
const file = (bytes: number) => {
  const fd = createSharedFile(bytes);
  open.push(fd);
  return fd;
};
const pages = (bytes = 65_536) =>
  new Uint8Array(new WebAssembly.Memory({ shared: true, initial: 1, maximum: 1 }).buffer, 0, bytes);

afterEach(() => {
  for (const fd of open.splice(0)) closeSync(fd);
});

describe('a file whose pages are shared', () => {
  test('two mappings and the file have the same bytes, until one is taken away', () => {
    const fd = file(2 ** 47);
    const [one, two] = [pages(), pages()];
    mapSharedFile(one, fd, 2 ** 46);
    mapSharedFile(two, fd, 2 ** 46);
    one[5] = 77;
    expect(two[5]).toBe(77);
    const read = new Uint8Array(1);
    readSync(fd, read, 0, 1, 2 ** 46 + 5);
    expect(read[0]).toBe(77);
    writeSync(fd, new Uint8Array([78]), 0, 1, 2 ** 46 + 5);
    expect(one[5]).toBe(78);
    unmapSharedFile(one);
    expect(one[5]).toBe(0);
    one[5] = 1;
    expect(two[5]).toBe(78);
  });

  test('no one can take pages away: the size is sealed', () => {
    const fd = file(65_536);
    // Opened anew, as a program with the descriptor can.
    expect(() => openSync(`/proc/self/fd/${fd}`, 'w')).toThrow('EPERM');
  });

  test('refuses memory that is not whole shared pages', () => {
    const fd = file(2 ** 20);
    expect(() => mapSharedFile(new Uint8Array(65_536), fd, 0)).toThrow(RangeError);
    expect(() => mapSharedFile(pages().subarray(1), fd, 0)).toThrow(RangeError);
    expect(() => mapSharedFile(pages(4095), fd, 0)).toThrow(RangeError);
    expect(() => mapSharedFile(pages(0), fd, 0)).toThrow(RangeError);
    expect(() => unmapSharedFile(new Uint8Array(65_536))).toThrow(RangeError);
    expect(() => mapSharedFile([] as never, fd, 0)).toThrow(TypeError);
  });

  test('refuses offsets that are no page, and files that can shrink', () => {
    const fd = file(2 ** 20);
    for (const offset of [1, -4096, 2 ** 47, Number.NaN, Number.POSITIVE_INFINITY])
      expect(() => mapSharedFile(pages(), fd, offset)).toThrow(RangeError);
    expect(() => mapSharedFile(pages(), fd, '0' as never)).toThrow(TypeError);
    const folder = mkdtempSync(join(tmpdir(), 'roce-'));
    const other = openSync(join(folder, 'file'), 'w+');
    expect(() => mapSharedFile(pages(), other, 0)).toThrow(RangeError);
    closeSync(other);
    rmSync(folder, { recursive: true });
    for (const bytes of [0, -1, 2 ** 48, Number.NaN])
      expect(() => createSharedFile(bytes)).toThrow(RangeError);
  });
});
