/** Contexts of `ibv_open_device` that are closed take no memory, whichever was opened first. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { MemoryNetwork } from '@node-roce/link';
import { expect, test } from 'vitest';
import { turns } from '../../verbs-api/testing/clock.ts';
import { good } from '../testing/pair.ts';
import * as v from './index.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** How many of the objects are still there: one at most, or as many as stay. */
async function held(refs: readonly WeakRef<object>[]): Promise<number> {
  let count = refs.length;
  for (let i = 0; i < 50 && count > 1; i++) {
    await turns();
    collect();
    count = refs.filter((ref) => ref.deref()).length;
  }
  return count;
}

const COUNT = 10;
const [device] = v.ibv_get_device_list();

test('each context is closed after the next was opened', async () => {
  const link = new MemoryNetwork().link('10.0.0.1');
  const refs: WeakRef<object>[] = [];
  let last = good(await v.ibv_open_device(device, { link }));
  for (let i = 0; i < COUNT; i++) {
    const next = good(await v.ibv_open_device(device, { link }));
    refs.push(new WeakRef(last.verbs));
    await v.ibv_close_device(last);
    last = next;
  }
  // The one before the last stands in the list until the next opening.
  expect(await held(refs)).toBeLessThanOrEqual(1);
  await v.ibv_close_device(last);
});

test('each context has a link of its own', async () => {
  const refs: WeakRef<object>[] = [];
  for (let i = 0; i < COUNT; i++) {
    const link = new MemoryNetwork().link('10.0.0.1');
    const context = good(await v.ibv_open_device(device, { link }));
    refs.push(new WeakRef(link));
    await v.ibv_close_device(context);
  }
  expect(await held(refs)).toBeLessThanOrEqual(1);
});
