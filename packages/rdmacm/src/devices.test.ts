/** The devices that ids open by themselves: shared by address and UDP port, with the options of the first. */
import { describe, expect, test } from 'vitest';
import { openEnds } from '../testing/ends.ts';
import { CmId, connect, type DeviceOptions, type IdOptions, listen } from './index.ts';

// Nobody else's: ports and addresses that follow from the process.
const UDP_PORT = 27_000 + (process.pid % 800);
const host = (n: number) => `127.85.${process.pid & 0xff}.${n}`;
const quick = { slots: 2, maxMessage: 64 };

async function bound(address: string, deviceOptions: DeviceOptions): Promise<CmId> {
  const id = new CmId({ deviceOptions });
  try {
    await id.bindAddr(address);
  } catch (error) {
    await id.destroy();
    throw error;
  }
  return id;
}

test('two UDP ports of an address are two devices, and a client reaches the server at its port', async () => {
  const options = (port: number) => ({ ...quick, deviceOptions: { port } });
  const servers = [UDP_PORT, UDP_PORT + 1].map((port, i) =>
    listen({ address: host(1), port: 7471, privateData: Uint8Array.of(i + 1), ...options(port) }),
  );
  const listeners = await Promise.all(servers);
  const clients = [];
  for (const port of [UDP_PORT, UDP_PORT + 1])
    clients.push(await connect(`${host(1)}:7471`, { source: host(2), ...options(port) }));
  expect(clients.map(({ privateData }) => privateData[0])).toEqual([1, 2]);
  expect(clients[0].id.device).not.toBe(clients[1].id.device);
  for (const listener of listeners) await (await listener.accept()).close();
  for (const each of [...clients, ...listeners]) await each.close();
});

test('the error of a peer that does not answer names the UDP port of the device', async () => {
  const timing = { responseTimeout: 8, packetLifetime: 8, maxRetries: 1 };
  const options = { ...quick, timing, source: host(2), deviceOptions: { port: UDP_PORT } };
  await expect(connect(`${host(8)}:7471`, options)).rejects.toMatchObject({
    code: 'ERR_ROCE_CM_UNREACHABLE',
    message: expect.stringContaining(`a firewall on UDP ${UDP_PORT},`),
  });
});

describe('options of an address that is open', () => {
  test.each<[string, DeviceOptions, DeviceOptions]>([
    ['engine', {}, { engine: 'worker' }],
    ['credits', {}, { credits: true }],
    ['experimental', { experimental: ['xrc'] }, { experimental: ['apm'] }],
    ['trace', {}, { trace: '/tmp/never-written.pcapng' }],
    ['limits', { limits: { maxQp: 5 } }, { limits: { maxQp: 6 } }],
    ['shared', { shared: false }, { shared: true }],
    ['shared by default', {}, { shared: false }],
    ['link', { link: 'udp' }, { link: 'dgram' }],
  ])('%s: another value is refused by name', async (name, first, second) => {
    const place = { port: UDP_PORT };
    const id = await bound(host(3), { ...first, ...place });
    await expect(bound(host(3), { ...second, ...place })).rejects.toMatchObject({
      errno: 'EINVAL',
      attribute: `deviceOptions.${name.split(' ')[0]}`,
    });
    await id.destroy();
    await (await bound(host(3), { ...place, engine: 'inline' })).destroy();
  });

  test('a link that can not share opens the address alone', async () => {
    const id = await bound(host(3), { port: UDP_PORT, link: 'dgram' });
    await expect(bound(host(3), { port: UDP_PORT, shared: true })).rejects.toMatchObject({
      attribute: 'deviceOptions.shared',
    });
    await id.destroy();
  });

  test('the same value, the default, and none are taken', async () => {
    const first = { port: UDP_PORT, limits: { maxQp: 5 }, credits: true };
    const ids = [await bound(host(4), first)];
    for (const more of [{ limits: { maxQp: 5 } }, { engine: 'inline' }, { credits: true }, {}] as const)
      ids.push(await bound(host(4), { port: UDP_PORT, ...more }));
    expect(new Set(ids.map(({ device }) => device)).size).toBe(1);
    for (const id of ids) await id.destroy();
  });
});

test.each([
  ['deviceOptions.address', { deviceOptions: { address: '127.0.0.9' } }],
  ['deviceOptions.interface', { deviceOptions: { interface: 'lo' } }],
  ['deviceOptions.signal', { deviceOptions: { signal: AbortSignal.abort() } }],
  ['deviceOptions.link', { deviceOptions: { link: {} } }],
])('%s is refused: the place is the id’s', (attribute, options) => {
  expect(() => new CmId(options as IdOptions)).toThrow(
    expect.objectContaining({ errno: 'EINVAL', attribute }),
  );
});

test('options of a device that is opened here are refused next to a device', async () => {
  await using ends = await openEnds();
  const options = { device: ends.a, deviceOptions: { engine: 'worker' } } as const;
  expect(() => new CmId(options)).toThrow(expect.objectContaining({ attribute: 'deviceOptions' }));
});
