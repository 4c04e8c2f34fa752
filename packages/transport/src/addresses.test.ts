import { expect, test, vi } from 'vitest';
import { addressOf } from '../testing/pair.ts';
import { Addresses } from './addresses.ts';
import { DEVICE_LIMITS } from './control.ts';

test.each([
  [0, 1],
  [1, 1],
  [2, 2],
  [255, 255],
])('hop limit %d leaves with %d: with 0 and 1, no packet leaves the subnet', (hopLimit, sent) => {
  const add = vi.fn(() => 0);
  const addresses = new Addresses({ add, remove: () => {} }, DEVICE_LIMITS);
  const address = addressOf(2);
  addresses.addPeer({ ...address, grh: { ...address.grh, hopLimit } });
  expect(add).toHaveBeenCalledWith(address.grh.dgid, 0, sent);
});
