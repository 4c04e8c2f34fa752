/** The addresses that a wildcard stands for, of a machine with other interfaces than this one. */
import { networkInterfaces } from 'node:os';
import { MemoryNetwork } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import { expect, test, vi } from 'vitest';
import { localAddresses } from './addresses.ts';
import { CmId, connect, listen } from './index.ts';

vi.mock('node:os', { spy: true });

const entry = (address: string) => ({ address, family: address.includes(':') ? 'IPv6' : 'IPv4' });

test('an address that two interfaces have is listened at once; link-local ones are of their interfaces', () => {
  const interfaces = {
    lo: ['127.0.0.1', '10.9.9.9', '::1'],
    a: ['10.9.9.9', 'fe80::1'],
    b: ['fe80::1'],
  };
  const entries = Object.entries(interfaces).map(([name, all]) => [name, all.map(entry)]);
  vi.mocked(networkInterfaces).mockReturnValue(Object.fromEntries(entries));
  expect(localAddresses('0.0.0.0')).toEqual(['127.0.0.1', '10.9.9.9']);
  expect(localAddresses('::')).toEqual(['127.0.0.1', '10.9.9.9', '::1', 'fe80::1%a', 'fe80::1%b']);
});

test('where another program has the UDP port of all addresses, no other port is drawn', async () => {
  const interfaces = vi.mocked(networkInterfaces);
  interfaces.mockReturnValue({ lo: [entry('127.0.0.1')] } as never);
  interfaces.mockClear();
  await using _other = await openDevice({ address: '127.0.0.1', port: 24_791 });
  await using id = new CmId({ deviceOptions: { port: 24_791 } });
  await expect(id.listen({ port: 0 })).rejects.toMatchObject({ errno: 'EADDRINUSE' });
  // 202 times with a hundred ports.
  expect(interfaces.mock.calls.length).toBeLessThan(10);
});

test('a wildcard as the peer is this machine, at our own address (core/cma.c `cma_resolve_loopback`)', async () => {
  await using device = await openDevice({ link: new MemoryNetwork().link('10.0.0.1', 1024) });
  await using listener = await listen({ device, port: 7 });
  for (const options of [{ device }, { device, source: '10.0.0.1' }]) {
    const client = await connect('0.0.0.0:7', options);
    const server = await listener.accept();
    expect(client.id.remoteAddress).toEqual({ address: '10.0.0.1', port: 7 });
    await Promise.all([client.close(), server.close()]);
  }
});
