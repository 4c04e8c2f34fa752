/** The connection manager next to the engine, through real queue pairs 1. */
import type { CmEvent } from '@node-roce/cm';
import { MemoryNetwork } from '@node-roce/link';
import {
  BTH_BYTES,
  CREDIT_UNLIMITED,
  creditCodeFor,
  gidFromText,
  ipCmServiceId,
  Opcode,
  PortSpace,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { host } from '../../../link/testing/loopback.ts';
import { clockOfTurns } from '../../testing/clock.ts';
import { openSide } from '../../testing/pair.ts';
import { type Device, GSI_QKEY, type OpenDeviceOptions, openDevice } from '../index.ts';

const SERVICE = ipCmServiceId(PortSpace.TCP, 7471);

/** A device and the events of its connections. */
async function open(options: OpenDeviceOptions) {
  const device = await openDevice(options);
  const events: CmEvent[] = [];
  const wake: (() => void)[] = [];
  const closed: unknown[] = [];
  device.connections.listener = {
    onEvent: (event) => {
      events.push(event);
      for (const resolve of wake.splice(0)) resolve();
    },
    onClosed: (reason) => void closed.push(reason),
  };
  return {
    device,
    port: device.connections,
    closed,
    async next<T extends CmEvent['type']>(type: T): Promise<Extract<CmEvent, { type: T }>> {
      while (events.length === 0) await new Promise<void>((resolve) => wake.push(resolve));
      const event = events.shift()!;
      expect(event.type).toBe(type);
      return event as Extract<CmEvent, { type: T }>;
    },
    [Symbol.asyncDispose]: () => device.close(),
  };
}
type End = Awaited<ReturnType<typeof open>>;

const route = (address: string) => ({
  sgidIndex: 0,
  gid: gidFromText(address),
  trafficClass: 0,
  hopLimit: 64,
  flowLabel: 0,
});
const offer = { startingPsn: 5, responderResources: 1, initiatorDepth: 1 };

const init = (address: string, qpn = 0x51) => ({
  ...offer,
  qpn,
  serviceId: SERVICE,
  route: route(address),
  pathMtu: 1024,
});

async function establish(a: End, b: End, address: string): Promise<[number, number]> {
  await b.port.call('cmListen', SERVICE);
  const id = await a.port.call('cmConnect', init(address));
  const request = await b.next('request');
  await b.port.call('cmAccept', request.id, { ...offer, qpn: 0x61 });
  const { reply } = await a.next('response');
  expect(reply.localQpn).toBe(0x61);
  await a.port.call('cmReady', id);
  await a.next('established');
  await b.next('established');
  return [id, request.id];
}

describe.each([
  ['in the program’s thread, over memory', undefined],
  ['in the program’s thread, over UDP', 'inline'],
] as const)('%s', (_name, engine) => {
  test('a connection is made and ended', async () => {
    const network = new MemoryNetwork();
    const place = (address: string): OpenDeviceOptions =>
      engine ? { address, engine, link: 'udp' } : { link: network.link(address, 1024) };
    await using a = await open(place(host(1)));
    await using b = await open(place(host(2)));
    const [id, other] = await establish(a, b, host(2));
    await a.port.call('cmDisconnect', id);
    expect(await b.next('disconnected')).toMatchObject({ id: other, cause: 'peer-closed' });
    await b.port.call('cmDisconnect', other);
    await a.next('disconnected');
    // TIMEWAIT: its timer runs while nothing else happens.
    await a.next('timewait-exit');
    await b.next('timewait-exit');
  });
});

test('a device that is closed disconnects its peers', async () => {
  const network = new MemoryNetwork();
  const a = await open({ link: network.link('10.0.0.1', 1024) });
  await using b = await open({ link: network.link('10.0.0.2', 1024) });
  const [, other] = await establish(a, b, '10.0.0.2');
  await a.device.close();
  expect(await b.next('disconnected')).toMatchObject({ id: other, cause: 'peer-closed' });
  expect(a.closed).toMatchObject([{ code: 'ERR_ROCE_CLOSED' }]);
});

test('and all of them, where there are many', async () => {
  const network = new MemoryNetwork();
  const a = await open({ link: network.link('10.0.0.1', 1024) });
  await using b = await open({ link: network.link('10.0.0.2', 1024) });
  await b.port.call('cmListen', SERVICE);
  const count = 500;
  for (let qpn = 0x100; qpn < 0x100 + count; qpn++) {
    const id = await a.port.call('cmConnect', init('10.0.0.2', qpn));
    const request = await b.next('request');
    await b.port.call('cmAccept', request.id, { ...offer, qpn });
    await a.next('response');
    await a.port.call('cmReady', id);
    await a.next('established');
    await b.next('established');
  }
  await a.device.close();
  for (let i = 0; i < count; i++) await b.next('disconnected');
});

test('contexts of a device hear of their own connections only', async () => {
  const network = new MemoryNetwork();
  await using a = await open({ link: network.link('10.0.0.1', 1024) });
  await using b = await open({ link: network.link('10.0.0.2', 1024) });
  const second: Device = a.device.openContext();
  const heard: string[] = [];
  second.connections.listener = { onEvent: ({ type }) => void heard.push(type), onClosed: () => {} };
  await b.port.call('cmListen', SERVICE);
  await second.connections.call('cmConnect', init('10.0.0.2'));
  const { id } = await b.next('request');
  // With its context, a connection ends; the device goes on.
  await second.close();
  expect(await b.next('rejected')).toMatchObject({ id, reject: { reason: 4 } });
  expect(heard).toEqual([]);
});

test('datagrams to queue pair 1 that are no MADs are counted, and nothing else happens', async () => {
  const network = new MemoryNetwork();
  await using a = await open({ link: network.link('10.0.0.1', 1024) });
  await a.port.call('cmListen', SERVICE);
  const stranger = await openSide(network, '10.0.0.2', { type: 'UD' });
  await stranger.qp.activate();
  const ah = await stranger.pd.createAh({ gid: '10.0.0.1' });
  const ud = { ah, remoteQpn: 1, remoteQkey: stranger.qp.qpNum };
  const say = (length: number) =>
    stranger.qp.send({ mr: stranger.mr, length }, { ud: { ...ud, remoteQkey: GSI_QKEY & 0x7fff_ffff } });
  // A Q_Key with the top bit set is the sender's own: a queue pair of a program can't name that of queue pair 1.
  await say(256);
  await say(4);
  expect((await a.port.call('cmCounters')).received).toBe(0);
  await stranger.device.close();

  const gsi = await openSide(network, '10.0.0.3', { type: 'GSI' });
  await gsi.qp.activate({ qkey: GSI_QKEY });
  const way = await gsi.pd.createAh({ gid: '10.0.0.1' });
  const mad = { ud: { ah: way, remoteQpn: 1, remoteQkey: GSI_QKEY } };
  await gsi.qp.send({ mr: gsi.mr, length: 4 }, mad);
  await gsi.qp.send({ mr: gsi.mr, length: 256 }, mad);
  await expect.poll(() => a.port.call('cmCounters')).toMatchObject({ dropped: 1, malformed: 1, received: 0 });
  await gsi.device.close();
});

describe('a device whose program has not used the connection manager', () => {
  test('answers a request at once: nobody listens', async () => {
    const network = new MemoryNetwork();
    await using a = await open({ link: network.link('10.0.0.1', 1024) });
    await using _b = await openDevice({ link: network.link('10.0.0.2', 1024) });
    const id = await a.port.call('cmConnect', init('10.0.0.2'));
    expect(await a.next('rejected')).toMatchObject({ id, reject: { reason: 8 } });
  });

  test('gives queue pair 1 to the program that asks for it, and is silent then', async () => {
    const network = new MemoryNetwork();
    await using a = await open({ link: network.link('10.0.0.1', 1024) });
    await a.port.call('cmConnect', init('10.0.0.2')); // Before there is such a device.
    const b = await openSide(network, '10.0.0.2', { type: 'UD' });
    const { pd, device } = b;
    const asked = await a.port.call('cmConnect', init('10.0.0.2', 0x52));
    expect(await a.next('rejected')).toMatchObject({ id: asked, reject: { reason: 8 } });
    const sendCq = await device.createCq(64);
    const gsi = await pd.createQp({ type: 'GSI', sendCq });
    await expect(device.connections.call('cmListen', SERVICE)).rejects.toMatchObject({ errno: 'EBUSY' });
    await gsi.close();
    await device.connections.call('cmListen', SERVICE);
    await expect(pd.createQp({ type: 'GSI', sendCq })).rejects.toMatchObject({ errno: 'EBUSY' });
    await device.close();
  });

  test('answers again once there is room for that', async () => {
    clockOfTurns();
    const network = new MemoryNetwork();
    await using a = await open({ link: network.link('10.0.0.1', 1024) });
    await using b = await openDevice({ link: network.link('10.0.0.2', 1024), limits: { maxMr: 1 } });
    const pd = await b.allocPd();
    const mr = await pd.registerMr(new Uint8Array(64));
    const short = { packetLifetime: 8, responseTimeout: 8 };
    await a.port.call('cmConnect', { ...init('10.0.0.2'), ...short });
    await a.next('unreachable');
    await mr.deregister();
    const id = await a.port.call('cmConnect', { ...init('10.0.0.2', 0x52), ...short });
    expect(await a.next('rejected')).toMatchObject({ id, reject: { reason: 8 } });
  });

  test('has as many queue pairs for its program as the limit allows', async () => {
    const network = new MemoryNetwork();
    await using a = await open({ link: network.link('10.0.0.1', 1024) });
    await using b = await openDevice({ link: network.link('10.0.0.2', 1024), limits: { maxQp: 1 } });
    await a.port.call('cmConnect', init('10.0.0.2'));
    await a.next('rejected');
    const pd = await b.allocPd();
    const sendCq = await b.createCq(16);
    await pd.createQp({ type: 'RC', sendCq });
    await expect(pd.createQp({ type: 'RC', sendCq })).rejects.toMatchObject({ errno: 'ENOMEM' });
  });
});

test('credits of a queue pair are switched by its connection, until its RESET', async () => {
  const network = new MemoryNetwork();
  const syndromes: number[] = [];
  const deliver = network.deliver.bind(network);
  network.deliver = (packet, destination) => {
    if (packet.bytes[0] === Opcode.RC_ACKNOWLEDGE) syndromes.push(packet.bytes[BTH_BYTES]);
    deliver(packet, destination);
  };
  const a = await openSide(network, '10.0.0.1');
  const b = await openSide(network, '10.0.0.2');
  const say = async () => {
    b.qp.receive(b.mr).catch(() => {});
    b.qp.receive(b.mr).catch(() => {});
    await a.qp.send(new Uint8Array(4));
  };
  const connectBoth = async () => {
    await a.qp.connect(b.qp.connectionData());
    await b.qp.connect(a.qp.connectionData());
  };
  await connectBoth();
  await say();
  await b.device.connections.call('cmSetCredits', b.qp.qpNum, true);
  await say();
  expect(syndromes).toEqual([CREDIT_UNLIMITED, creditCodeFor(2)]);
  for (const { qp } of [a, b]) await qp.modify({ qpState: 'RESET' });
  await connectBoth();
  await say();
  expect(syndromes.at(-1)).toBe(CREDIT_UNLIMITED);
  await a.device.close();
  await b.device.close();
});

test('queue pair 1 has one user', async () => {
  const network = new MemoryNetwork();
  const gsi = await openSide(network, '10.0.0.3', { type: 'GSI' });
  await expect(gsi.device.connections.call('cmListen', SERVICE)).rejects.toMatchObject({ errno: 'EBUSY' });
  await gsi.device.close();
});
