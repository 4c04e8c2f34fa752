/** The verbs over `node:dgram`: among themselves, and with a peer whose link is the native one. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { type Device, type OpenOptions, openDevice } from '@node-roce/verbs-api';
import { afterEach, describe, expect, test } from 'vitest';

// A port and addresses of our own: suites that run at the same time do not meet.
const port = 40_000 + (process.pid % 10_000);
const host = (n: number) => `127.${0x40 | ((process.pid >> 8) & 0x3f)}.${process.pid & 0xff}.${n}`;
const root = join(import.meta.dirname, '../..');

const open = new Set<Device>();
afterEach(async () => {
  for (const device of open) await device.close();
  open.clear();
});

const MIB = 1024 * 1024;
const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

async function openSide(address: string, options: Partial<OpenOptions>) {
  const device = await openDevice({ address, port, ...options });
  open.add(device);
  const pd = await device.allocPd();
  const cq = await device.createCq(512);
  const memory = new Uint8Array(new SharedArrayBuffer(2 * MIB));
  const mr = await pd.registerMr(memory, {
    access: { remoteWrite: true, remoteRead: true, remoteAtomic: true },
  });
  const qp = await pd.createQp({ sendCq: cq });
  return { device, pd, cq, memory, mr, qp };
}

async function openPair(left: Partial<OpenOptions>, right: Partial<OpenOptions>) {
  const a = await openSide(host(1), left);
  const b = await openSide(host(2), right);
  await a.qp.connect(b.qp.connectionData());
  await b.qp.connect(a.qp.connectionData());
  return { a, b };
}

function fill(bytes: Uint8Array, salt: number): void {
  for (let i = 0; i < bytes.length; i++) bytes[i] = i * 7 + (i >> 8) * 13 + salt;
}

/** SEND, WRITE, READ and an atomic of A's, each checked. */
async function exercise({ a, b }: Awaited<ReturnType<typeof openPair>>, sizes: readonly number[]) {
  for (const [i, length] of sizes.entries()) {
    fill(a.memory, i);
    const sent = sha256(a.memory.subarray(0, length));
    const sgList = [{ mr: a.mr, length }];
    b.memory.fill(0);
    b.qp.postRecv({ sgList: [{ mr: b.mr, length: Math.max(length, 1) }] });
    a.qp.postSend({ opcode: 'SEND', sgList, signaled: true });
    expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS' });
    expect(await b.cq.next()).toMatchObject({ opcode: 'RECV', byteLen: length });
    expect(sha256(b.memory.subarray(0, length))).toBe(sent);
    b.memory.fill(0);
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList, remote: b.mr.remote(), signaled: true });
    expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS' });
    expect(sha256(b.memory.subarray(0, length))).toBe(sent);
    a.memory.fill(0);
    a.qp.postSend({ opcode: 'RDMA_READ', sgList, remote: b.mr.remote(), signaled: true });
    expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS' });
    expect(sha256(a.memory.subarray(0, length))).toBe(sent);
  }
  const counter = new BigUint64Array(b.memory.buffer, 0, 1);
  counter[0] = 41n;
  a.qp.postSend({
    opcode: 'ATOMIC_FETCH_AND_ADD',
    sgList: [{ mr: a.mr, length: 8 }],
    remote: b.mr.remote(),
    compareAdd: 1n,
    signaled: true,
  });
  expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS' });
  expect([counter[0], new BigUint64Array(a.memory.buffer, 0, 1)[0]]).toEqual([42n, 41n]);
}

const SIZES = [0, 1, 4095, 4096, 4097, MIB + 1];

describe.each<[string, Partial<OpenOptions>, Partial<OpenOptions>]>([
  ['dgram and dgram', { link: 'dgram' }, { link: 'dgram' }],
  ['dgram and udp', { link: 'dgram' }, { link: 'udp' }],
  ['udp and dgram', { link: 'udp' }, { link: 'dgram' }],
  ['dgram in a worker and dgram', { link: 'dgram', engine: 'worker' }, { link: 'dgram' }],
])('%s', (_name, left, right) => {
  test('SEND, WRITE, READ and an atomic of every kind of size', async () => {
    const pair = await openPair(left, right);
    await exercise(pair, SIZES);
    for (const { device } of [pair.a, pair.b]) {
      expect(await device.counters()).toMatchObject({ icrcErrors: 0, icrcOutOfWindow: 0, wrongSource: 0 });
    }
  });
});

test('over a link that loses, reorders, doubles and corrupts', async () => {
  const faults = { loss: 0.02, reorder: 0.02, duplicate: 0.02, corrupt: 0.02, seed: 5 };
  const pair = await openPair({ link: 'dgram', faults }, { link: 'dgram' });
  await exercise(pair, SIZES);
  const { link, icrcErrors } = await pair.a.device.counters();
  expect(link['inbound.lost'] + link['outbound.lost']).toBeGreaterThan(0);
  // A corrupt packet may come twice.
  expect(icrcErrors).toBeGreaterThanOrEqual(link['inbound.corrupted']);
  expect(link['inbound.corrupted']).toBeGreaterThan(0);
});

test('connects over IPv6', async () => {
  // One address of IPv6 on lo: both queue pairs are the same device's.
  const side = await openSide('::1', { link: 'dgram' });
  const other = await side.pd.createQp({ sendCq: side.cq });
  await side.qp.connect(other.connectionData());
  await other.connect(side.qp.connectionData());
  fill(side.memory.subarray(0, MIB), 6);
  const write = { opcode: 'RDMA_WRITE' as const, signaled: true, sgList: [{ mr: side.mr, length: MIB }] };
  side.qp.postSend({ ...write, remote: side.mr.remote(MIB) });
  expect((await side.cq.next()).status).toBe('SUCCESS');
  expect(sha256(side.memory.subarray(MIB))).toBe(sha256(side.memory.subarray(0, MIB)));
});

test('the device reports its link, and that a poll needs the event loop where it shares its thread', async () => {
  const { a, b } = await openPair({ link: 'dgram' }, { link: 'dgram', engine: 'worker' });
  expect(a.device.query()).toMatchObject({ link: 'dgram', needsEventLoop: true });
  expect(b.device.query()).toMatchObject({ link: 'dgram', needsEventLoop: false });
  const native = await openDevice({ address: host(3), port });
  open.add(native);
  expect(native.query()).toMatchObject({ link: 'udp', needsEventLoop: false });
});

test('without the addon: auto is dgram, with a warning; udp is an error with the remedy', () => {
  const program = `
    import { openDevice } from '@node-roce/verbs-api';
    const at = { address: '${host(4)}', port: ${port} };
    process.on('warning', ({ code, message }) => console.log('warning', code, message));
    const device = await openDevice(at);
    console.log('link', device.query().link);
    await device.close();
    await openDevice({ ...at, link: 'udp' }).catch(({ code, message }) => console.log('error', code, message));
  `;
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ['--no-warnings', '--input-type=module', '-e', program],
    {
      cwd: root,
      env: { ...process.env, ROCE_ADDON_FOLDER: '/nonexistent' },
      encoding: 'utf8',
    },
  );
  expect(stderr).toBe('');
  expect(stdout).toMatch(/^link dgram$/m);
  expect(stdout).toMatch(/^warning ROCE_DGRAM_LINK .*reaches node-roce programs only/m);
  expect(stdout).toMatch(/^error ERR_ROCE_NO_ADDON .*npm run build:native/m);
});

test('a group needs the native addon, and the error names it', async () => {
  const { device, pd, cq } = await openSide(host(1), { link: 'dgram' });
  const qp = await pd.createQp({ sendCq: cq, type: 'UD' });
  await qp.toInit({ qkey: 1 });
  await expect(qp.attachMcast('239.1.2.3')).rejects.toMatchObject({
    code: 'ERR_ROCE_NOT_SUPPORTED',
    errno: 'EOPNOTSUPP',
    expected: expect.stringContaining('native addon'),
  });
  expect((await device.query()).limitations.join(' ')).toContain('multicast group');
});
