/** The MTU of a way: a route that has one of its own, in the network namespace of this file. */
import { spawnSync } from 'node:child_process';
import { afterAll, expect, test } from 'vitest';
import { routeMtu, tooLong } from './path-mtu.ts';

const route = ['10.99.2.0/24', 'dev', 'lo', 'mtu', 'lock', '1400'];
const mayRoute = spawnSync('ip', ['route', 'add', ...route]).status === 0;
afterAll(() => {
  if (mayRoute) spawnSync('ip', ['route', 'del', ...route]);
});

test.skipIf(!mayRoute)(
  'packets that are longer than the route allows are named, with the path MTU that fits',
  async () => {
    expect(await routeMtu('10.99.2.1')).toBe(1400);
    expect(await tooLong('10.99.2.1', 4096)).toContain('has MTU 1400');
    expect(await tooLong('10.99.2.1', 4096)).toContain('use path MTU 1024');
    expect(await tooLong('10.99.2.1', 1024)).toBeUndefined();
    expect(await tooLong('127.0.0.1', 4096)).toBeUndefined();
  },
);

test('a text that is not an address has no route', async () => {
  expect(await routeMtu('nowhere')).toBeUndefined();
});
