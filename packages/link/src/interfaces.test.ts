import { expect, test } from 'vitest';
import { activeMtuOf, interfaceByAddress, interfaceByName, listInterfaces } from './interfaces.ts';

test('the loopback interface: its addresses, its MTU, all of 127.0.0.0/8', () => {
  const lo = interfaceByAddress('127.0.0.1');
  expect(lo).toMatchObject({ loopback: true, up: true });
  expect(lo.mtu).toBeGreaterThan(1500);
  expect(interfaceByName(lo.name)).toEqual(lo);
  expect(interfaceByAddress('127.99.1.2').name).toBe(lo.name);
  expect(interfaceByAddress(`127.0.0.1%${lo.name}`).name).toBe(lo.name);
  expect(listInterfaces().map((nic) => nic.name)).toContain(lo.name);
});

const nic = (mtu: number | undefined) => ({ ...interfaceByAddress('127.0.0.1'), mtu });

test.each([
  [65_536, 4096],
  [9000, 4096],
  [1500, 1024],
  [576, 256],
  [undefined, 1024],
])('an MTU of %s makes a path MTU of %d', (mtu, expected) => {
  expect(activeMtuOf(nic(mtu))).toBe(expected);
});

test.each([
  ['no such interface', () => interfaceByName('roce-none0'), 'ENOENT', 'interface'],
  ['an address of nobody here', () => interfaceByAddress('203.0.113.77'), 'EADDRNOTAVAIL', 'address'],
  ['a name', () => interfaceByAddress('localhost'), 'EINVAL', 'address'],
  ['a zone of no interface', () => interfaceByAddress('fe80::1%roce-none0'), 'EADDRNOTAVAIL', 'address'],
])('%s is refused, with the accepted forms', (_name, call, errno, attribute) => {
  expect(call).toThrow(
    expect.objectContaining({ name: 'RoceError', errno, attribute, expected: expect.any(String) }),
  );
});
