/** Last replies: what is shown of them agrees with what waits. */
import { expect, test } from 'vitest';
import type { Addresses } from '../addresses.ts';
import { RegionTable } from '../batch.ts';
import { Farewells } from './farewells.ts';

test.each(['waiting', 'leaving'] as const)('the check sees `%s` where nothing is', (name) => {
  const farewells = new Farewells(new RegionTable(), {} as Addresses);
  expect(farewells.check()).toBeUndefined();
  (farewells as Record<typeof name, boolean>)[name] = true;
  expect(farewells.check()).toBe('0 last replies wait, and that is shown wrong');
});
