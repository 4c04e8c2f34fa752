/** Ports of ids, as rdma_bind_addr(3) and rdma_resolve_addr(3) have them. */
import { networkInterfaces } from 'node:os';
import { MemoryNetwork } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { ADDRESSES, openEnds } from '../testing/ends.ts';
import { CmId, connect, EventChannel, type IdOptions, listen } from './index.ts';
import { bindPort } from './ports.ts';

const [CLIENT, SERVER] = ADDRESSES;
const IN_USE = { code: 'ERR_ROCE_PORT_IN_USE', errno: 'EADDRINUSE', attribute: 'port' };
// Nobody else's: a UDP port that follows from the process.
const UDP_PORT = 26_000 + (process.pid % 800);
const deviceOptions = { port: UDP_PORT, link: 'udp' } as const;

const hasIpv6 = Object.values(networkInterfaces()).some((all = []) =>
  all.some(({ address }) => address === '::1'),
);

const ids: CmId[] = [];
afterEach(async () => {
  for (const id of ids.splice(0)) await id.destroy();
});
function create(options: IdOptions): CmId {
  const id = new CmId(options);
  ids.push(id);
  return id;
}

describe('a port that an id is bound to', () => {
  test('is there at once, chosen or drawn, and stays', async () => {
    await using ends = await openEnds();
    const [chosen, drawn] = [create({ device: ends.a }), create({ device: ends.a })];
    await chosen.bindAddr(CLIENT, 5555);
    await drawn.bindAddr(CLIENT);
    expect(chosen.localAddress).toEqual({ address: CLIENT, port: 5555 });
    const { port } = drawn.localAddress!;
    expect(port).toBeGreaterThanOrEqual(49_152);
    for (const id of [chosen, drawn]) await id.resolveAddr({ host: SERVER, port: 7471 });
    expect([chosen, drawn].map(({ localAddress }) => localAddress!.port)).toEqual([5555, port]);
  });

  test('that another id has leaves the id without a device: it can be bound at another address', async () => {
    const holder = create({ deviceOptions });
    await holder.bindAddr('127.0.26.1', 5556);
    const id = create({ deviceOptions });
    await expect(id.bindAddr('127.0.26.1', 5556)).rejects.toMatchObject(IN_USE);
    await expect(
      id.resolveAddr({ host: '127.0.26.3', port: 7471, source: '127.0.26.1', sourcePort: 5556 }),
    ).rejects.toMatchObject(IN_USE);
    expect(() => id.device).toThrow(expect.objectContaining({ code: 'ERR_ROCE_CM_STATE' }));
    await id.bindAddr('127.0.26.2', 5556);
    expect(id.localAddress).toEqual({ address: '127.0.26.2', port: 5556 });
  });

  test('is free again where the id is destroyed while the call that binds it is under way', async () => {
    await using ends = await openEnds();
    const calls: ((id: CmId) => Promise<void>)[] = [
      (id) => id.bindAddr(CLIENT, 5557),
      (id) => id.listen({ address: CLIENT, port: 5557 }),
      (id) => id.resolveAddr({ host: SERVER, port: 7471, sourcePort: 5557 }),
    ];
    for (const call of calls)
      for (let wait = 0; wait < 12; wait++) {
        const id = create({ device: ends.a });
        const calling = call(id).catch((error) => expect(error).toMatchObject({ code: 'ERR_ROCE_CLOSED' }));
        for (let i = 0; i < wait; i++) await Promise.resolve();
        await Promise.all([id.destroy(), calling]);
        const next = create({ device: ends.a });
        await next.bindAddr(CLIENT, 5557);
        await next.destroy();
      }
  });

  test('is what the peer sees, also where resolveAddr has given it', async () => {
    await using ends = await openEnds();
    const listener = create({ device: ends.b });
    await listener.listen({ port: 7471 });
    const id = create({ device: ends.a });
    await id.resolveAddr({ host: SERVER, port: 7471, source: CLIENT, sourcePort: 5556 });
    await id.resolveRoute();
    const pd = await ends.a.allocPd();
    await id.createQp(pd, { sendCq: await ends.a.createCq(4) });
    const connecting = id.connect();
    const request = await listener.getRequest();
    ids.push(request);
    expect(request.remoteAddress).toEqual({ address: CLIENT, port: 5556 });
    expect(request.localAddress).toEqual({ address: SERVER, port: 7471 });
    await request.reject();
    await expect(connecting).rejects.toMatchObject({ code: 'ERR_ROCE_CM_REFUSED' });
  });

  test('is no other id’s in its port space and address, until the id is destroyed', async () => {
    await using ends = await openEnds();
    const first = create({ device: ends.a });
    await first.bindAddr(CLIENT, 5555);
    const second = create({ device: ends.a.openContext() });
    await expect(second.bindAddr(CLIENT, 5555)).rejects.toMatchObject(IN_USE);
    const resolving = second.resolveAddr({ host: SERVER, port: 1, source: CLIENT, sourcePort: 5555 });
    await expect(resolving).rejects.toMatchObject(IN_USE);
    await expect(second.listen({ port: 5555 })).rejects.toMatchObject(IN_USE);
    await create({ device: ends.a, portSpace: 'UDP' }).bindAddr(CLIENT, 5555);
    await create({ device: ends.b }).bindAddr(SERVER, 5555);
    await first.destroy();
    await second.bindAddr(CLIENT, 5555);
  });

  test('is listened to; another one only where it was drawn', async () => {
    await using ends = await openEnds();
    const chosen = create({ device: ends.b });
    await chosen.bindAddr(SERVER, 7471);
    await expect(chosen.listen({ port: 7472 })).rejects.toMatchObject({ errno: 'EINVAL', attribute: 'port' });
    await chosen.listen({ port: 0 });
    expect(chosen.localAddress!.port).toBe(7471);
    const drawn = create({ device: ends.b });
    await drawn.bindAddr(SERVER);
    await drawn.listen({ port: 7472 });
    expect(drawn.localAddress!.port).toBe(7472);
  });
});

test('connections of one device have different ports', async () => {
  await using ends = await openEnds();
  for (let i = 0; i < 600; i++) await create({ device: ends.a }).resolveAddr({ host: SERVER, port: 7471 });
  expect(new Set(ids.map(({ localAddress }) => localAddress!.port)).size).toBe(600);
});

test('every port of a residue class is drawn once, then others, until none is left', () => {
  const tables = { own: 'test', others: [], residue: { modulus: 2048, remainder: 2047 } };
  const bindings = Array.from({ length: 32 }, () => bindPort(tables, 'TCP', CLIENT, 0));
  const ports = bindings.map(({ port }) => port);
  expect(new Set(ports).size).toBe(32);
  expect(ports.every((port) => port % 2048 === 2047)).toBe(true);
  expect(ports.slice(0, 8).every((port) => port >= 49_152)).toBe(true);
  expect(() => bindPort(tables, 'TCP', CLIENT, 0)).toThrow(
    expect.objectContaining({ errno: 'EADDRNOTAVAIL' }),
  );
  for (const binding of bindings) binding.release();
  bindPort(tables, 'TCP', CLIENT, 0).release();
});

test('`::` for IPv6 alone leaves the port of IPv4 to another id, in either order', () => {
  const tables = { own: 'versions', others: [] };
  const bind = (address: string, isV6Only = false) => bindPort(tables, 'TCP', address, 3260, isV6Only);
  for (const [first, second] of [
    [() => bind('0.0.0.0'), () => bind('::', true)],
    [() => bind('::', true), () => bind('0.0.0.0')],
    [() => bind('::', true), () => bind(SERVER)],
  ]) {
    const bindings = [first(), second()];
    for (const other of ['::', 'fd00::1']) expect(() => bind(other)).toThrow('in use');
    expect(() => bind('::', true)).toThrow('in use');
    for (const binding of bindings) binding.release();
  }
  const both = bind('::');
  expect(() => bind('0.0.0.0')).toThrow('in use');
  expect(() => bind('::', true)).toThrow('in use');
  both.release();
});

describe('a wildcard', () => {
  test('has no device until it is resolved, and keeps its port', async () => {
    const id = create({ deviceOptions });
    await id.bindAddr('0.0.0.0', 7481);
    expect([id.state, id.localAddress]).toEqual(['BOUND', { address: '0.0.0.0', port: 7481 }]);
    expect(() => id.device).toThrow(expect.objectContaining({ code: 'ERR_ROCE_CM_STATE' }));
    await expect(create({ deviceOptions }).bindAddr('127.0.0.1', 7481)).rejects.toMatchObject(IN_USE);
    await expect(create({ deviceOptions }).bindAddr('::', 7481)).rejects.toMatchObject(IN_USE);
    if (hasIpv6) await create({ deviceOptions }).bindAddr('::1', 7481);
    await id.resolveAddr({ host: '127.0.0.1', port: 1 });
    expect(id.localAddress).toEqual({ address: '127.0.0.1', port: 7481 });
  });

  test.each([
    [{ port: 7482 }, ['127.0.0.1', '::1']],
    [{ port: 7482, address: '::' }, ['127.0.0.1', '::1']],
    [{ port: 7482, address: '0.0.0.0' }, ['127.0.0.1']],
    [{ port: 0 }, ['127.0.0.1']],
  ])('listens at all addresses of the machine: %o', async (place, addresses) => {
    const options = { slots: 2, maxMessage: 64, deviceOptions };
    await using listener = await listen({ ...options, ...place });
    for (const address of addresses) {
      if (address === '::1' && !hasIpv6) continue;
      const host = address.includes(':') ? `[${address}]` : address;
      const client = await connect(`${host}:${listener.port}`, { ...options, source: address });
      const server = await listener.accept();
      expect(server.id.localAddress).toEqual({ address, port: listener.port });
      await client.send(address);
      expect(new TextDecoder().decode(await server.receive())).toBe(address);
      await Promise.all([client.close(), server.close()]);
    }
  });

  test('leaves out addresses whose UDP port another program has, and warns', async () => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
    await using other = await openDevice({ address: '127.0.0.1', ...deviceOptions });
    const all = Object.values(networkInterfaces()).flatMap((entries = []) => entries);
    const id = create({ deviceOptions });
    const listening = id.listen({ port: 7483 });
    if (all.length > 1) {
      await listening;
      const more = expect.objectContaining({ code: 'ROCE_LISTEN_ADDRESS' });
      expect(warn).toHaveBeenCalledWith(expect.stringContaining('127.0.0.1'), more);
    } else await expect(listening).rejects.toMatchObject(IN_USE);
    expect(other.closed).toBe(false);
    warn.mockRestore();
  });

  test('hears of the end of its last device alone', async () => {
    await using channel = new EventChannel<CmId>();
    const id = create({ deviceOptions, channel });
    await id.listen({ address: '0.0.0.0', port: 7484 });
    const addresses = Object.values(networkInterfaces())
      .flatMap((entries = []) => entries)
      .filter(({ family }) => family === 'IPv4')
      .map(({ address }) => address);
    const next = channel.getEvent();
    for (const address of addresses) {
      expect(id.state).toBe('LISTEN');
      const user = create({ deviceOptions });
      await user.bindAddr(address);
      await user.device.close();
    }
    expect(await next).toMatchObject({ event: 'DEVICE_REMOVAL', id });
    await expect(id.getRequest()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
  });

  test('with a device of the program’s stands for the addresses of the device', async () => {
    await using device = await openDevice({ link: new MemoryNetwork().link(SERVER, 1024) });
    const id = create({ device });
    await id.bindAddr('0.0.0.0', 7471);
    expect(id.device).toBe(device);
    await id.listen({ port: 7471 });
  });
});
