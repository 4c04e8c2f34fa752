/** The route to a peer whose address is of one link. */
import { networkInterfaces } from 'node:os';
import { expect, test } from 'vitest';
import { checkReachable, findWay } from './peer.ts';

/** An address of one link, with its link; where the machine has one. */
const linkLocal = Object.entries(networkInterfaces())
  .flatMap(([name, addresses = []]) => addresses.map(({ address }) => `${address}%${name}`))
  .find((address) => address.startsWith('fe80:'));

test.skipIf(linkLocal === undefined)('reaches an address of one link, by its link', async () => {
  const way = await findWay(linkLocal!, undefined);
  if (!('nic' in way)) throw new Error(way.text);
  // Nobody answers there, or somebody does; the socket of the check is bound in either case.
  expect((await checkReachable(way)).text).not.toContain('reached: EINVAL');
});
