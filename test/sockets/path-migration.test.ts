/** Path migration over real sockets on loopback: two addresses a device, and a path between each two of them. */
import { type Link, openUdpLink } from '@node-roce/link';
import type { QpAttr } from '@node-roce/transport';
import { type Device, type OpenDeviceOptions, openDevice } from '@node-roce/verbs-api';
import { afterEach, describe, expect, test } from 'vitest';
import { CutLink } from './apm/cut-link.ts';

// A port and addresses of our own: suites that run at the same time do not meet.
const port = 40_000 + (process.pid % 10_000);
const host = (n: number) => `127.${(process.pid >> 8) & 0x7f}.${process.pid & 0xff}.${n}`;
const LENGTH = 1024 * 1024;

const open = new Set<Device>();
afterEach(async () => {
  for (const device of open) await device.close();
  open.clear();
});

async function openSide(options: OpenDeviceOptions) {
  const device = await openDevice({ ...options, experimental: ['apm'] });
  open.add(device);
  const pd = await device.allocPd();
  const cq = await device.createCq(64);
  const memory = new Uint8Array(new SharedArrayBuffer(LENGTH));
  const mr = await pd.registerMr(memory, { access: { remoteWrite: true } });
  const qp = await pd.createQp({ sendCq: cq });
  const events: string[] = [];
  device.onEvent(({ type }) => void events.push(type));
  return { device, pd, cq, memory, mr, qp, events };
}

type Side = Awaited<ReturnType<typeof openSide>>;

/** @param timeout ACK timeout of the first path. Used up by all retries, it is seconds: nobody migrates because the machine is busy. */
async function connected(of: (n: number) => Promise<OpenDeviceOptions>, timeout = 18) {
  const a = await openSide(await of(1));
  const b = await openSide(await of(2));
  const options = { timeout, retryCnt: 7, gidIndex: 0 };
  await a.qp.connect(b.qp.connectionData(), options);
  await b.qp.connect(a.qp.connectionData(), options);
  const write = () => a.qp.write({ mr: a.mr, length: LENGTH }, b.mr.remote(0));
  const load = async (side: Side, peer: Side) => {
    const { attr } = await side.qp.query();
    const { ahAttr } = attr as Required<QpAttr>;
    const grh = { ...ahAttr.grh, sgidIndex: 1, dgid: peer.device.gids[1].gid };
    await side.qp.modify({
      altAhAttr: { ...ahAttr, grh },
      altPkeyIndex: 0,
      altPortNum: 1,
      altTimeout: 18,
      pathMigState: 'REARM',
    });
  };
  const states = async () => [await a.qp.query(), await b.qp.query()].map(({ attr }) => attr.pathMigState);
  a.memory.fill(1);
  expect((await write()).ok).toBe(true);
  await load(a, b);
  await load(b, a);
  a.memory.fill(2);
  expect((await write()).ok).toBe(true);
  expect(await states()).toEqual(['ARMED', 'ARMED']);
  const expectMigrated = async (fill: number) => {
    expect(b.memory.every((byte) => byte === fill)).toBe(true);
    expect(await states()).toEqual(['MIGRATED', 'MIGRATED']);
    for (const { events, qp } of [a, b]) {
      expect(events.filter((type) => type !== 'COMM_EST')).toEqual(['PATH_MIG']);
      const { attr } = await qp.query();
      expect([attr.ahAttr?.grh.sgidIndex, attr.timeout, attr.altAhAttr]).toEqual([1, 18, undefined]);
    }
  };
  return { a, b, write, expectMigrated };
}

describe.each(['inline', 'worker'] as const)('engine: %s', (engine) => {
  test('a program migrates while a message is under way, and the peer follows', async () => {
    const address = (n: number) => [host(2 * n), host(2 * n + 1)];
    const { a, write, expectMigrated } = await connected(async (n) => ({
      address: address(n),
      port,
      engine,
    }));
    a.memory.fill(3);
    const done = write();
    await a.qp.modify({ pathMigState: 'MIGRATED' });
    expect((await done).ok).toBe(true);
    // On a quiet machine the message may be over before: the peer follows the next packet then.
    expect((await write()).ok).toBe(true);
    await expectMigrated(3);
  });
});

test('a path that is cut is left when its retries are used up', async () => {
  const links: CutLink[] = [];
  const linkOf = async (n: number): Promise<{ link: Link }> => {
    const link = new CutLink(await openUdpLink({ address: [host(2 * n + 10), host(2 * n + 11)], port }));
    links.push(link);
    return { link };
  };
  const { a, write, expectMigrated } = await connected(linkOf, 14);
  a.memory.fill(4);
  for (const link of links) link.cut = true;
  expect((await write()).ok).toBe(true);
  await expectMigrated(4);
});
