/** Addresses of several kinds, and devices with several of them. */
import { type MemoryLink, MemoryNetwork } from '@node-roce/link';
import { type Device, type GidEntry, openDevice } from '@node-roce/verbs-api';
import { gidFromText } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { ADDRESSES, equip, openEnds } from '../testing/ends.ts';
import { addName } from '../testing/names.ts';
import { sourceTowards } from './addresses.ts';
import { CmId, connect, listen } from './index.ts';

const BOTH = [
  { address: 'fd00::2', family: 6 },
  { address: '10.0.0.2', family: 4 },
];

/** Another address of a link, which its packets do not leave from. */
function addAddress(link: MemoryLink, address: string): void {
  (link.gids as GidEntry[]).push({ gid: gidFromText(address), address, type: 'RoCE v2' });
}

test('link-local addresses with their zone', async () => {
  const network = new MemoryNetwork();
  await using a = await openDevice({ link: network.link('fe80::1', 1024) });
  await using b = await openDevice({ link: network.link('fe80::2', 1024) });
  await using listener = await listen({ device: b, port: 0 });
  await using client = await connect(`[fe80::2%lo]:${listener.port}`, { device: a, source: 'fe80::1%lo' });
  await using server = await listener.accept();
  await client.send('hello');
  expect(new TextDecoder().decode(await server.receive())).toBe('hello');
  expect(server.id.remoteAddress?.address).toBe('fe80::1');
});

test.each([
  ['fd00::9', 'fd00::1'],
  ['fe80::9', 'fe80::1'],
  ['10.0.0.9', '10.0.0.1'],
])('packets to %s leave from %s', async (host, own) => {
  const link = new MemoryNetwork().link('fe80::1', 1024);
  addAddress(link, 'fd00::1');
  addAddress(link, '10.0.0.1');
  await using device = await openDevice({ link });
  const id = new CmId({ device });
  await id.resolveAddr({ host, port: 1 });
  expect(id.localAddress?.address).toBe(own);
});

test.each([
  ['10.0.0.1', '10.0.0.2'],
  ['fd00::1', 'fd00::2'],
])('a name with addresses of both IP versions: from %s leads %s', async (own, chosen) => {
  addName('both.test', async ({ all }) => (all ? BOTH : BOTH[0]));
  await using device = await openDevice({ link: new MemoryNetwork().link(own, 1024) });
  const id = new CmId({ device });
  await id.resolveAddr({ host: 'both.test', port: 1 });
  expect(id.remoteAddress?.address).toBe(chosen);
});

test('datagrams leave from the address that the service was asked from', async () => {
  const network = new MemoryNetwork();
  const link = network.link('10.0.0.1', 1024);
  addAddress(link, '10.0.0.7');
  await using a = await openDevice({ link });
  await using b = await openDevice({ link: network.link('10.0.0.2', 1024) });
  const listening = new CmId({ device: b, portSpace: 'UDP' });
  await listening.listen({ port: 7174 });
  const id = new CmId({ device: a, portSpace: 'UDP' });
  await id.resolveAddr({ host: '10.0.0.2', port: 7174, source: '10.0.0.7' });
  await id.resolveRoute();
  await equip(id);
  const connecting = id.connect();
  const request = await listening.getRequest();
  await equip(request);
  await request.accept();
  await connecting;
  expect(id.peer?.ah.attr.grh.sgidIndex).toBe(1);
  const group = await id.joinMulticast('239.1.1.1');
  expect(group.ah.attr.grh.sgidIndex).toBe(1);
});

test('groups are joined and left any number of times', async () => {
  const network = new MemoryNetwork();
  await using device = await openDevice({ link: network.link('10.0.0.1', 1024), limits: { maxAh: 2 } });
  const id = new CmId({ device, portSpace: 'UDP' });
  await id.bindAddr('10.0.0.1');
  const { pd, mr } = await equip(id);
  for (let i = 0; i < 5; i++) {
    await id.joinMulticast('239.1.1.1');
    await id.leaveMulticast('239.1.1.1');
    await id.joinMulticast('239.1.1.1', { sendOnly: true });
    await id.leaveMulticast('239.1.1.1');
  }
  await expect(id.leaveMulticast('239.1.1.1')).rejects.toMatchObject({ code: 'ERR_ROCE_CM_STATE' });
  const first = await id.joinMulticast('239.1.1.1', { sendOnly: true });
  expect((await id.joinMulticast('239.1.1.1')).ah).toBe(first.ah);
  await id.destroy();
  await mr.deregister();
  await pd.dealloc();
});

test('a group that is joined again while it is being left gets its datagrams', async () => {
  await using ends = await openEnds();
  const join = async (device: Device, address: string) => {
    const id = new CmId({ device, portSpace: 'UDP' });
    await id.bindAddr(address);
    return { id, ...(await equip(id)) };
  };
  const member = await join(ends.b, ADDRESSES[1]);
  await member.id.joinMulticast('239.1.1.1');
  const leaving = member.id.leaveMulticast('239.1.1.1');
  await member.id.joinMulticast('239.1.1.1');
  await leaving;
  const sender = await join(ends.a, ADDRESSES[0]);
  const group = await sender.id.joinMulticast('239.1.1.1', { sendOnly: true });
  const received = member.qp.receive({ mr: member.mr, offset: 0, length: 256 });
  await sender.qp.send({ mr: sender.mr, offset: 0, length: 4 }, { ud: group });
  expect((await received).byteLen).toBe(44);
  await member.id.destroy();
  await member.mr.deregister();
  await member.pd.dealloc();
});

test('a link-local address without its interface: the message names what is missing', async () => {
  await expect(sourceTowards('fe80::1')).rejects.toMatchObject({
    code: 'ERR_ROCE_CM_NO_ADDRESS',
    message: expect.stringMatching(/fe80::1 is an address of one link.*fe80::1%<interface>/),
  });
});
