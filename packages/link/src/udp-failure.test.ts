/** A socket that the addon does not take is closed: its address and port are free again. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { gidFromText } from '@node-roce/wire';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { host, ownPort as PORT } from '../testing/loopback.ts';
import { openUdpLink } from './open-sockets.ts';

const addon = vi.hoisted(() => ({ refuses: false }));
vi.mock('@node-roce/dgram-native', async (original) => {
  const native = await original<typeof import('@node-roce/dgram-native')>();
  class Port extends native.Port {
    override addLocal(...args: Parameters<InstanceType<typeof native.Port>['addLocal']>): number {
      if (addon.refuses) throw new Error('no room');
      return super.addLocal(...args);
    }
  }
  return { ...native, Port };
});
afterEach(() => {
  addon.refuses = false;
});

const ADDRESS = host(77);
const open = () => openUdpLink({ address: ADDRESS, port: PORT });

/** Whether a socket can be bound there. */
async function isFree(address: string): Promise<boolean> {
  const socket = createSocket('udp4');
  onTestFinished(() => void socket.close());
  socket.bind(PORT, address);
  return once(socket, 'listening').then(
    () => true,
    () => false,
  );
}

test('of a link that opens', async () => {
  addon.refuses = true;
  await expect(open()).rejects.toThrow('no room');
  expect(await isFree(ADDRESS)).toBe(true);
});

test('of an address that comes later', async () => {
  const link = await openUdpLink({ interface: 'lo', port: PORT });
  onTestFinished(() => link.close());
  addon.refuses = true;
  expect(() => link.setAddress(ADDRESS, true)).toThrow('no room');
  expect(await isFree(ADDRESS)).toBe(true);
  addon.refuses = false;
});

test('of a group', async () => {
  const link = await open();
  onTestFinished(() => link.close());
  addon.refuses = true;
  expect(() => link.join(gidFromText('239.1.2.3'), 0)).toThrow('no room');
  expect(await isFree('239.1.2.3')).toBe(true);
  expect(await isFree(ADDRESS)).toBe(false);
});
