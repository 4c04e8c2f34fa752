/** Descriptors that other processes write to, to wake an event loop. */
import { execFileSync } from 'node:child_process';
import { readSync, writeSync } from 'node:fs';
import { expect, test } from 'vitest';
import { Doorbells } from '../index.js';
import { DEADLINE_MS } from './support.ts';

const one = new Uint8Array(8);
one[0] = 1;

/** Doorbells whose next ring can be waited for. */
function ringable() {
  let rings = 0;
  let notify = () => {};
  const doorbells = new Doorbells(() => {
    rings++;
    notify();
  });
  return {
    doorbells,
    rings: () => rings,
    next: () =>
      new Promise<void>((resolve) => {
        notify = resolve;
      }),
  };
}

test('each write rings, and nobody reads', async () => {
  const { doorbells, rings, next } = ringable();
  const [a, b] = [doorbells.add(), doorbells.add()];
  for (const [i, fd] of [a, a, b, a, b].entries()) {
    const rung = next();
    writeSync(fd, one);
    await rung;
    expect(rings()).toBe(i + 1);
  }
  const count = new Uint8Array(8);
  expect(readSync(a, count)).toBe(8);
  expect(count[0]).toBe(3);
  doorbells.close();
});

test('one that is removed rings no more', async () => {
  const { doorbells, rings, next } = ringable();
  const [a, b] = [doorbells.add(), doorbells.add()];
  expect(doorbells.remove(a)).toBe(true);
  expect(doorbells.remove(a)).toBe(false);
  expect(doorbells.remove(1)).toBe(false);
  const rung = next();
  writeSync(b, one);
  await rung;
  expect(rings()).toBe(1);
  doorbells.close();
  expect(doorbells.remove(b)).toBe(false);
  expect(() => doorbells.add()).toThrow(expect.objectContaining({ code: 'ERR_OUT_OF_RANGE' }));
  doorbells.close();
});

test('refuses callbacks that can’t be called, and numbers that are no descriptors', () => {
  for (const onRing of [undefined, null, 1, {}])
    expect(() => new Doorbells(onRing as never)).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_ARG_TYPE' }),
    );
  const doorbells = new Doorbells(() => {});
  for (const fd of [-1, 2 ** 31, 0.5, Number.NaN])
    expect(() => doorbells.remove(fd)).toThrow(expect.objectContaining({ code: 'ERR_OUT_OF_RANGE' }));
  doorbells.close();
});

test('they keep no process alive, and leave nothing behind', () => {
  const script = `
    import { readdirSync } from 'node:fs';
    import { Doorbells } from ${JSON.stringify(new URL('../index.js', import.meta.url).href)};
    new Doorbells(() => {}).add();
    const open = () => readdirSync('/proc/self/fd').length;
    const before = open();
    for (let i = 0; i < 1000; i++) {
      const doorbells = new Doorbells(() => {});
      doorbells.add();
      doorbells.remove(doorbells.add());
      doorbells.close();
    }
    setImmediate(() => console.log(open() - before));
  `;
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
    timeout: DEADLINE_MS,
  });
  expect(output.trim()).toBe('0');
});
