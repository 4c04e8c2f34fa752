/** Alternate paths over the connection manager (LAP, APR), over real sockets on loopback: two addresses a device. */
import { openUdpLink } from '@node-roce/link';
import { CmId } from '@node-roce/rdmacm';
import { type Device, type OpenOptions, openDevice } from '@node-roce/verbs-api';
import { describe, expect, onTestFinished, test } from 'vitest';
import { CutLink } from './apm/cut-link.ts';

// A port and addresses of our own: suites that run at the same time do not meet.
const port = 40_000 + (process.pid % 10_000);
const host = (n: number) => `127.${(process.pid >> 8) & 0x7f}.${process.pid & 0xff}.${n}`;

async function openSide(n: number, options: Pick<OpenOptions, 'experimental'> = { experimental: ['apm'] }) {
  const addresses = [host(2 * n), host(2 * n + 1)];
  const link = new CutLink(await openUdpLink({ address: addresses, port }));
  const device = await openDevice({ link, ...options });
  onTestFinished(() => device.close());
  const events: string[] = [];
  device.onEvent(({ type }) => void events.push(type));
  return { device, link, events, addresses };
}

async function equip(id: CmId, device: Device) {
  const pd = await device.allocPd();
  const cq = await device.createCq(64);
  const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(4096)), {
    access: { remoteWrite: true },
  });
  return { id, mr, qp: await id.createQp(pd, { sendCq: cq }) };
}

async function connected(other?: Pick<OpenOptions, 'experimental'>) {
  const [left, right] = [await openSide(30), await openSide(31, other)];
  const timing = { responseTimeout: 14, packetLifetime: 8, maxRetries: 4 };
  const listener = new CmId({ device: right.device, timing });
  await listener.listen({ port: 7471, address: right.addresses[0] });
  const client = new CmId({ device: left.device, timing, ackTimeout: 10 });
  await client.resolveAddr({ host: right.addresses[0], port: 7471, source: left.addresses[0] });
  await client.resolveRoute();
  const a = { ...left, ...(await equip(client, left.device)) };
  const connecting = client.connect({ retryCount: 2 });
  const request = await listener.getRequest();
  const b = { ...right, ...(await equip(request, right.device)) };
  await Promise.all([request.accept(), connecting]);
  /** A WRITE each way: so each side sees the other's MigReq. */
  const beat = async () => {
    for (const [from, to] of [
      [a, b],
      [b, a],
    ])
      expect((await from.qp.write({ mr: from.mr, length: 4096 }, to.mr.remote(0))).ok).toBe(true);
  };
  const states = async () => Promise.all([a, b].map(async ({ qp }) => (await qp.query()).attr.pathMigState));
  return { a, b, beat, states };
}

const migrations = ({ events }: { events: string[] }) => events.filter((type) => type.startsWith('PATH'));

describe.each(['initiator', 'listener'] as const)('a path that the %s loads', (who) => {
  test('is armed on both sides, taken when the other one is cut, and leads to the end', async () => {
    const { a, b, beat, states } = await connected();
    await beat();
    const [asks, peer] = who === 'initiator' ? [a, b] : [b, a];
    await asks.id.loadAlternatePath({ address: peer.addresses[1], ackTimeout: 11 });
    await beat();
    expect(await states()).toEqual(['ARMED', 'ARMED']);
    for (const { link } of [a, b]) link.cut = true;
    await beat();
    expect(await states()).toEqual(['MIGRATED', 'MIGRATED']);
    for (const [own, other] of [
      [a, b],
      [b, a],
    ] as const) {
      expect(migrations(own)).toEqual(['PATH_MIG']);
      const { ahAttr, timeout } = (await own.qp.query()).attr;
      expect([ahAttr!.grh.sgidIndex, ahAttr!.grh.dgid, timeout]).toEqual([1, other.device.gids[1].gid, 11]);
    }
    // Messages of the connection manager take the new path, too: the old one is cut.
    await a.id.disconnect();
    await b.id.disconnected;
  });
});

test.each(['initiator', 'target'] as const)(
  'a path that the XRC %s loads is armed on both sides',
  async (who) => {
    const experimental: OpenOptions['experimental'] = ['apm', 'xrc'];
    const [left, right] = [await openSide(30, { experimental }), await openSide(31, { experimental })];
    const listener = new CmId({ device: right.device, transport: 'XRC' });
    await listener.listen({ port: 7471, address: right.addresses[0] });
    const client = new CmId({ device: left.device, transport: 'XRC' });
    await client.resolveAddr({ host: right.addresses[0], port: 7471, source: left.addresses[0] });
    await client.resolveRoute();
    const { qp, mr } = await equip(client, left.device);
    const connecting = client.connect();
    const request = await listener.getRequest();
    const pd = await right.device.allocPd();
    const domain = await right.device.openXrcDomain();
    const srq = await pd.createSrq({ xrc: { domain, cq: await right.device.createCq(16) } });
    const target = await request.createTarget(domain);
    await Promise.all([request.accept(), connecting]);

    const memory = await pd.registerMr(new Uint8Array(64), { access: { remoteWrite: true } });
    const beat = () => qp.write({ mr, length: 64 }, memory.remote(0), { remoteSrqn: srq.number! });
    const states = async () => [
      (await qp.query()).attr.pathMigState,
      (await target.query()).attr.pathMigState,
    ];
    await beat();
    const [id, address] = who === 'initiator' ? [client, right.addresses[1]] : [request, left.addresses[1]];
    await id.loadAlternatePath({ address });
    expect(await states()).toEqual(['REARM', 'REARM']);
    await beat();
    expect(await states()).toEqual(['ARMED', 'ARMED']);
    await qp.modify({ pathMigState: 'MIGRATED' });
    await beat();
    expect(await states()).toEqual(['MIGRATED', 'MIGRATED']);
    await client.disconnect();
    await request.disconnected;
  },
);

test('paths are loaded again after each migration, from either side', async () => {
  const { a, b, beat, states } = await connected();
  await beat();
  for (let i = 1; i <= 4; i++) {
    const [asks, peer] = i % 2 === 0 ? [a, b] : [b, a];
    await asks.id.loadAlternatePath({ address: peer.addresses[i % 2], source: asks.addresses[i % 2] });
    await beat();
    expect(await states()).toEqual(['ARMED', 'ARMED']);
    await peer.qp.modify({ pathMigState: 'MIGRATED' });
    await beat();
    expect(await states()).toEqual(['MIGRATED', 'MIGRATED']);
  }
  expect([migrations(a), migrations(b)]).toEqual([Array(4).fill('PATH_MIG'), Array(4).fill('PATH_MIG')]);
});

describe('a path is refused', () => {
  test('by a peer whose paths do not migrate', async () => {
    const { a, b, beat, states } = await connected({});
    await beat();
    await expect(a.id.loadAlternatePath({ address: b.addresses[1] })).rejects.toMatchObject({
      code: 'ERR_ROCE_CM_REFUSED',
      reason: 'UNSUPPORTED',
      message: expect.stringContaining('apm'),
    });
    expect(await states()).toEqual(['MIGRATED', undefined]);
    await beat();
    // And by our own device: nothing is sent.
    await expect(b.id.loadAlternatePath({ address: a.addresses[1] })).rejects.toMatchObject({
      errno: 'EOPNOTSUPP',
      attribute: 'altAhAttr',
    });
  });

  test.each<[string, object, object]>([
    ['to an address that the peer has not', { address: host(99) }, { reason: 'INVALID_GID' }],
    ['from an address that we have not', { address: host(63), source: host(98) }, { attribute: 'source' }],
    ['of the other IP version', { address: '::1' }, { attribute: 'source' }],
    ['with a timeout out of range', { address: host(63), ackTimeout: 32 }, { attribute: 'ackTimeout' }],
    ['without an address', {}, { attribute: 'address' }],
  ])('%s', async (_, place, error) => {
    const { a, beat, states } = await connected();
    await expect(a.id.loadAlternatePath(place as { address: string })).rejects.toMatchObject(error);
    expect(await states()).toEqual(['MIGRATED', 'MIGRATED']);
    await beat();
  });

  test('before the connection is made', async () => {
    const { device } = await openSide(30);
    await expect(new CmId({ device }).loadAlternatePath({ address: host(63) })).rejects.toMatchObject({
      code: 'ERR_ROCE_CM_STATE',
    });
  });
});

test('a path to a peer that does not answer is given up, and the connection goes on', async () => {
  const { a, b, beat, states } = await connected();
  await beat();
  b.link.cut = true;
  const loading = a.id.loadAlternatePath({ address: b.addresses[1] });
  await expect(loading).rejects.toMatchObject({ code: 'ERR_ROCE_CM_UNREACHABLE' });
  b.link.cut = false;
  await beat();
  expect(await states()).toEqual(['MIGRATED', 'MIGRATED']);
});
