/** The route to a peer, also where its address is of one link, and whether it refuses. */
import { Socket } from 'node:dgram';
import { networkInterfaces } from 'node:os';
import { expect, test, vi } from 'vitest';
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

test('a thread that stood still sees the refusal that came meanwhile', async () => {
  const { send } = Socket.prototype;
  const spy = vi.spyOn(Socket.prototype, 'send').mockImplementation(function (
    this: Socket,
    ...args: unknown[]
  ) {
    (send as (...args: unknown[]) => void).apply(this, args);
    // For longer than the check waits for it.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1100);
  } as typeof send);
  const way = await findWay('127.0.0.1', undefined);
  if (!('nic' in way)) throw new Error(way.text);
  expect(await checkReachable({ ...way, address: '127.0.9.5' })).toMatchObject({ verdict: 'fail' });
  spy.mockRestore();
});
