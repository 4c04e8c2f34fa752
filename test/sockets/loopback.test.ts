/**
 * The verbs over real sockets on loopback, as an ordinary process, with the engine in this thread and in
 * a worker: what a program would do, through the public API only.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openCapture } from '@node-roce/pcap/node';
import {
  type ConnectOptions,
  type Device,
  type OpenOptions,
  openDevice,
  type QueuePairInit,
  SendFlags,
} from '@node-roce/verbs-api';
import { createRandom, verifyIcrc } from '@node-roce/wire';
import { afterEach, describe, expect, test } from 'vitest';

// A port and addresses of our own: suites that run at the same time do not meet.
const port = 50_000 + (process.pid % 10_000);
const host = (n: number) => `127.${(process.pid >> 8) & 0x7f}.${process.pid & 0xff}.${n}`;

const open = new Set<Device>();
afterEach(async () => {
  for (const device of open) await device.close();
  open.clear();
});

const MIB = 1024 * 1024;
/** The deadline of a loop in which no timer runs. */
const MINUTES = 120_000;
/** 2.1 s, eight times: an engine whose thread the machine holds up answers in time. */
const PATIENT = { timeout: 18, retryCnt: 7 };
const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

function pattern(bytes: Uint8Array, seed: number): Uint8Array {
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 2);
  const random = createRandom(seed);
  for (let i = 0; i < words.length; i++) words[i] = random.next();
  return bytes;
}

async function openSide(address: string, options: Partial<OpenOptions>, init: Partial<QueuePairInit> = {}) {
  const device = await openDevice({ address, port, ...options });
  open.add(device);
  const pd = await device.allocPd();
  const cq = await device.createCq(512);
  const memory = new Uint8Array(new SharedArrayBuffer(4 * MIB));
  const access = { remoteWrite: true, remoteRead: true };
  const mr = await pd.registerMr(memory, { access });
  const qp = await pd.createQp({ sendCq: cq, ...init });
  return { device, pd, cq, memory, mr, qp };
}

interface PairOptions {
  device?: Partial<OpenOptions>;
  connect?: ConnectOptions;
  qp?: Partial<QueuePairInit>;
  addresses?: [string, string];
}

async function openPair({ device = {}, connect = {}, qp = {}, addresses }: PairOptions = {}) {
  const [left, right] = addresses ?? [host(1), host(2)];
  const a = await openSide(left, device, qp);
  const b = await openSide(right, device, qp);
  // Data that went through JSON, as between two programs.
  const carried = <T>(value: T): T => JSON.parse(JSON.stringify(value));
  await a.qp.connect(carried(b.qp.connectionData()), connect);
  await b.qp.connect(carried(a.qp.connectionData()), connect);
  return { a, b };
}

describe.each(['inline', 'worker'] as const)('engine: %s', (engine) => {
  const ends = ['close', 'RESET', 'ERR'] as const;
  const title =
    'a receiver that polls a message and ends its queue pair at once leaves the sender with SUCCESS: %s';
  test.each(ends)(title, (how) => endAtOnce(how, 3));
  // A worker's ACK may have left before; in this thread it is still owed as the message is polled.
  if (engine === 'inline')
    test.each(ends)(`${title}, ten times`, { tags: ['slow', 'gate'] }, (how) => endAtOnce(how, 10));

  async function endAtOnce(how: (typeof ends)[number], times: number): Promise<void> {
    for (let i = 0; i < times; i++) {
      const { a, b } = await openPair({ device: { engine }, connect: PATIENT });
      b.qp.postRecv({ wrId: 1, sgList: [{ mr: b.mr, length: 64 }] });
      a.qp.postSend({ wrId: 2, opcode: 'SEND', sgList: [{ mr: a.mr, length: 64 }], signaled: true });
      const done = a.cq.poll(); // Sends.
      const end = performance.now() + MINUTES;
      let polled = b.cq.poll();
      while (polled.length === 0 && performance.now() < end) polled = b.cq.poll();
      const ended = how === 'close' ? b.qp.close() : b.qp.modify({ qpState: how });
      expect(polled).toMatchObject([{ status: 'SUCCESS', wrIdNumber: 1 }]);
      await ended;
      expect(done.pop() ?? (await a.cq.next())).toMatchObject({ status: 'SUCCESS', wrIdNumber: 2 });
      for (const { device } of [a, b]) {
        open.delete(device);
        await device.close();
      }
    }
  }

  test('SENDs by numbers and by prepared lists, receives by numbers', async () => {
    const { a, b } = await openPair({ device: { engine }, connect: { pathMtu: 1024 } });
    const LENGTH = 70;
    const COUNT = 48;
    pattern(a.memory, 5);
    const prepared = a.qp.prepare(
      Array.from({ length: COUNT / 2 }, (_, i) => ({
        ...{ opcode: 'SEND', wrId: i, signaled: i === COUNT / 2 - 1 },
        sgList: [{ mr: a.mr, offset: (COUNT / 2 + i) * LENGTH, length: LENGTH }],
      })),
    );
    // More entries than the queues have: they go around their ends.
    for (let round = 1; round <= 8; round++) {
      b.memory.fill(0, 0, COUNT * LENGTH);
      for (let i = 0; i < COUNT; i++) b.qp.postRecvOf(b.mr, i * LENGTH, LENGTH, i);
      for (let i = 1; i < COUNT / 2; i++) a.qp.postSendOf(a.mr, (i - 1) * LENGTH, LENGTH);
      a.qp.postSendOf(a.mr, (COUNT / 2 - 1) * LENGTH, LENGTH, SendFlags.SIGNALED, 1000 + round);
      prepared.post();
      for (const wrIdNumber of [1000 + round, COUNT / 2 - 1])
        expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS', wrIdNumber });
      for (let wrIdNumber = 0; wrIdNumber < COUNT; wrIdNumber++)
        expect(await b.cq.next()).toMatchObject({ status: 'SUCCESS', wrIdNumber, byteLen: LENGTH });
      expect(sha256(b.memory.subarray(0, COUNT * LENGTH))).toBe(sha256(a.memory.subarray(0, COUNT * LENGTH)));
    }
  });

  test('UC: SEND and WRITE with immediate, READ refused', async () => {
    const { a, b } = await openPair({ device: { engine }, qp: { type: 'UC' }, connect: { pathMtu: 1024 } });
    pattern(a.memory, 3);
    const length = 5000;
    const sent = sha256(a.memory.subarray(0, length));
    const sgList = [{ mr: a.mr, length }];
    b.qp.postRecv({ wrId: 1, sgList: [{ mr: b.mr, offset: 64, length }] });
    a.qp.postSend({ opcode: 'SEND_WITH_IMM', immData: 9, sgList, signaled: true, wrId: 2 });
    expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS', wrIdNumber: 2 });
    expect(await b.cq.next()).toMatchObject({
      status: 'SUCCESS',
      byteLen: length,
      immData: 9,
      wrIdNumber: 1,
    });
    expect(sha256(b.memory.subarray(64, 64 + length))).toBe(sent);

    b.qp.postRecv({ wrId: 3 });
    const remote = b.mr.remote(8192);
    a.qp.postSend({ opcode: 'RDMA_WRITE_WITH_IMM', immData: 10, sgList, signaled: true, remote });
    expect(await b.cq.next()).toMatchObject({ opcode: 'RECV_RDMA_WITH_IMM', immData: 10, wrIdNumber: 3 });
    expect(sha256(b.memory.subarray(8192, 8192 + length))).toBe(sent);
    expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS', opcode: 'RDMA_WRITE' });

    a.qp.postSend({ opcode: 'RDMA_READ', sgList, signaled: true, remote });
    expect(await a.cq.next()).toMatchObject({ status: 'LOC_QP_OP_ERR' });
    expect(a.qp.state).toBe('SQE');
    await a.qp.modify({ qpState: 'RTS', curQpState: 'SQE' });
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList, signaled: true, remote });
    expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS' });
  });

  test.each([256, 1024, 4096])(
    'SEND, WRITE and READ of every kind of size at path MTU %d',
    async (pathMtu) => {
      const { a, b } = await openPair({ device: { engine }, connect: { pathMtu } });
      expect(a.device.query()).toMatchObject({
        activeMtu: 4096,
        link: 'udp',
        interface: { loopback: true, up: true },
      });
      pattern(a.memory, pathMtu);
      const sizes = [0, 1, 3, pathMtu - 1, pathMtu, pathMtu + 1, 3 * pathMtu + 5, MIB + 1];
      for (const [i, length] of sizes.entries()) {
        const from = i * 3 + 1; // Unaligned on purpose.
        const sent = sha256(a.memory.subarray(from, from + length));
        const sgList = [
          { mr: a.mr, offset: from, length: length >> 1 },
          { mr: a.mr, offset: from + (length >> 1), length: length - (length >> 1) },
        ];
        const target = 64 + i;
        const got = () => sha256(b.memory.subarray(target, target + length));
        const guards = () => [b.memory[target - 1], b.memory[target + length]];

        b.memory.fill(0xa5);
        b.qp.postRecv({ wrId: 7, sgList: [{ mr: b.mr, offset: target, length: Math.max(length, 1) }] });
        a.qp.postSend({ opcode: 'SEND_WITH_IMM', immData: i, sgList, signaled: true, wrId: i });
        expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS', opcode: 'SEND', wrIdNumber: i });
        expect(await b.cq.next()).toMatchObject({
          opcode: 'RECV',
          byteLen: length,
          immData: i,
          wrIdNumber: 7,
        });
        expect(got()).toBe(sent);
        expect(guards()).toEqual([0xa5, 0xa5]);

        b.memory.fill(0x5a);
        b.qp.postRecv({ wrId: 8 });
        const remote = b.mr.remote(target);
        a.qp.postSend({ opcode: 'RDMA_WRITE_WITH_IMM', immData: ~i >>> 0, sgList, remote, signaled: true });
        expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS', opcode: 'RDMA_WRITE' });
        expect(await b.cq.next()).toMatchObject({ opcode: 'RECV_RDMA_WITH_IMM', immData: ~i >>> 0 });
        expect(got()).toBe(sent);
        expect(guards()).toEqual([0x5a, 0x5a]);

        // And back again, to another place of the first.
        const back = 2 * MIB + i;
        a.memory.fill(0x33, 2 * MIB - 1, 3 * MIB + 64);
        a.qp.postSend({
          opcode: 'RDMA_READ',
          sgList: [{ mr: a.mr, offset: back, length }],
          remote,
          signaled: true,
        });
        expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS', opcode: 'RDMA_READ', byteLen: length });
        expect(sha256(a.memory.subarray(back, back + length))).toBe(sent);
        expect([a.memory[back - 1], a.memory[back + length]]).toEqual([0x33, 0x33]);
      }
      const counters = await a.device.counters();
      expect(counters).toMatchObject({ icrcErrors: 0, icrcOutOfWindow: 0, wrongSource: 0 });
    },
  );

  test('connects over IPv6', async () => {
    const device = { engine, address: '::1', port };
    // One address of IPv6 on lo: both queue pairs are the same device's.
    const side = await openSide('::1', device);
    const other = await side.pd.createQp({ sendCq: side.cq });
    await side.qp.connect(other.connectionData());
    await other.connect(side.qp.connectionData());
    pattern(side.memory.subarray(0, MIB), 6);
    side.qp.postSend({
      opcode: 'RDMA_WRITE',
      signaled: true,
      sgList: [{ mr: side.mr, length: MIB }],
      remote: side.mr.remote(2 * MIB),
    });
    expect((await side.cq.next()).status).toBe('SUCCESS');
    expect(sha256(side.memory.subarray(2 * MIB, 3 * MIB))).toBe(sha256(side.memory.subarray(0, MIB)));
  });

  test('a stream of messages, posted in lists and taken by iteration, stays in order', async () => {
    const { a, b } = await openPair({ device: { engine } });
    const count = 2000;
    const wr = { opcode: 'SEND' as const, signaled: true, sgList: [{ mr: a.mr, length: 512 }] };
    const list = Array.from({ length: 16 }, () => ({ ...wr, wrId: 0 }));
    const receives = Array.from({ length: 16 }, (_, i) => ({
      wrId: 0,
      sgList: [{ mr: b.mr, offset: i * 512, length: 512 }],
    }));
    let postedReceives = 0;
    const replenish = (n: number) => {
      for (const recv of receives.slice(0, n)) recv.wrId = postedReceives++;
      b.qp.postRecv(receives.slice(0, n));
    };
    for (let i = 0; i < 8; i++) replenish(16);
    const receiver = (async () => {
      const seen: number[] = [];
      for await (const wc of b.cq) {
        expect(wc.status).toBe('SUCCESS');
        seen.push(wc.wrIdNumber);
        if (postedReceives < count) replenish(1);
        if (seen.length === count) return seen;
      }
      throw new Error('the iteration ended');
    })();
    let posted = 0;
    let done = 0;
    while (done < count) {
      if (posted < count && a.qp.sendPending <= 64) {
        for (const item of list) item.wrId = posted++;
        a.qp.postSend(list);
        continue;
      }
      const wc = await a.cq.next();
      expect([wc.status, wc.wrIdNumber]).toEqual(['SUCCESS', done++]);
    }
    expect(await receiver).toEqual(Array.from({ length: count }, (_, i) => i));
  });

  test('a key that is wrong, on both sides', async () => {
    const { a, b } = await openPair({ device: { engine } });
    const events: string[] = [];
    b.device.onEvent((event) => events.push(event.type));
    a.qp.postSend({
      opcode: 'RDMA_WRITE',
      wrId: 1,
      sgList: [{ mr: a.mr, length: 64 }],
      remote: { addr: b.mr.addr, rkey: (b.mr.rkey ^ 1) >>> 0 },
    });
    a.qp.postSend({ opcode: 'SEND', wrId: 2, sgList: [{ mr: a.mr, length: 64 }] });
    expect(await a.cq.next()).toMatchObject({ status: 'REM_ACCESS_ERR', wrIdNumber: 1 });
    expect(await a.cq.next()).toMatchObject({ status: 'WR_FLUSH_ERR', wrIdNumber: 2 });
    expect(a.qp.state).toBe('ERR');
    await expect.poll(() => b.qp.state).toBe('ERR');
  });

  test('a peer that is gone: retries, then the error', async () => {
    const { a, b } = await openPair({ device: { engine }, connect: { timeout: 8, retryCnt: 2 } });
    await b.device.close();
    a.qp.postSend({ opcode: 'SEND', sgList: [{ mr: a.mr, length: 8 }] });
    expect((await a.cq.next()).status).toBe('RETRY_EXC_ERR');
    expect(await a.qp.counters()).toMatchObject({ timeouts: 3 });
  });

  test('through loss in both directions', async () => {
    const faults = { loss: 0.01, seed: 11 };
    const { a, b } = await openPair({ device: { engine, faults }, connect: PATIENT });
    pattern(a.memory, 5);
    const sgList = [{ mr: a.mr, length: MIB }];
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList, remote: b.mr.remote(), signaled: true });
    expect((await a.cq.next()).status).toBe('SUCCESS');
    expect(sha256(b.memory.subarray(0, MIB))).toBe(sha256(a.memory.subarray(0, MIB)));
    expect((await a.device.counters()).retransmittedPackets).toBeGreaterThan(0);
  });

  test('an abort ends a wait, closing ends all of them, in the middle of traffic', async () => {
    const { a, b } = await openPair({ device: { engine } });
    await expect(b.cq.next({ signal: AbortSignal.timeout(20) })).rejects.toMatchObject({
      name: 'TimeoutError',
    });
    const sgList = [{ mr: a.mr }];
    for (let i = 0; i < 100; i++) a.qp.postSend({ opcode: 'RDMA_WRITE', sgList, remote: b.mr.remote() });
    const waiting = expect(b.cq.wait()).rejects.toMatchObject({ code: 'ERR_ROCE_CLOSED' });
    const iterating = (async () => {
      for await (const _ of a.cq);
    })();
    await sleep(5);
    await Promise.all([a.device.close(), b.device.close()]);
    await waiting;
    await iterating;
    // The port is free again.
    await openSide(host(1), { engine });
  });

  test('a trace of everything, each packet with a right ICRC', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'verbs-'));
    const trace = join(folder, 'a.pcapng');
    // On a busy machine, an answer may take longer than a probe or the ACK timer waits.
    const a = await openSide(host(1), { engine, trace, recovery: { probes: false } });
    const b = await openSide(host(2), { engine });
    await a.qp.connect(b.qp.connectionData(), { timeout: 0 });
    await b.qp.connect(a.qp.connectionData());
    b.qp.postRecv({ sgList: [{ mr: b.mr }] });
    a.qp.postSend({ opcode: 'SEND', signaled: true, sgList: [{ mr: a.mr, length: 20_001 }] });
    await a.cq.next();
    await a.device.close();
    let inbound = 0;
    let outbound = 0;
    for await (const packets of openCapture(trace)) {
      for (const { data, direction } of packets) {
        expect(verifyIcrc(data, 0, data.length)).toBe(true);
        if (direction === 'inbound') inbound++;
        else outbound++;
      }
    }
    expect(outbound).toBe(5);
    expect(inbound).toBeGreaterThan(0);
    await rm(folder, { recursive: true });
  });

  test('a port that is taken: its owner, and remedies', async () => {
    await openSide(host(1), { engine });
    await expect(openSide(host(1), { engine })).rejects.toMatchObject({
      name: 'RoceError',
      code: 'ERR_ROCE_PORT_IN_USE',
      errno: 'EADDRINUSE',
      attribute: 'port',
      message: expect.stringMatching(new RegExp(`UDP port ${port} at .* in use: this process has it: close`)),
    });
  });

  test('an idle device takes no CPU', async () => {
    const { a, b } = await openPair({ device: { engine } });
    const sgList = [{ mr: a.mr, length: 64 }];
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList, remote: b.mr.remote(), signaled: true });
    await a.cq.next();
    await sleep(50);
    const before = process.cpuUsage();
    await sleep(500);
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1000).toBeLessThan(100);
  });
});

describe('the engine in a worker', () => {
  test('memory that it can not see is refused, with a remedy', async () => {
    const { pd } = await openSide(host(1), { engine: 'worker' });
    await expect(pd.registerMr(new Uint8Array(64))).rejects.toMatchObject({
      code: 'ERR_ROCE_NOT_SHARED',
      errno: 'EINVAL',
      expected: expect.stringContaining('SharedArrayBuffer'),
    });
  });

  test('an error keeps its message', async () => {
    const { qp } = await openSide(host(1), { engine: 'worker' });
    await expect(qp.modify({ qpState: 'RTS' })).rejects.toMatchObject({
      name: 'RoceError',
      errno: 'EINVAL',
      attribute: 'qpState',
      expected: expect.stringContaining('INIT'),
    });
    await expect(openDevice({ interface: 'roce-none0', engine: 'worker' })).rejects.toMatchObject({
      code: 'ERR_ROCE_NO_INTERFACE',
      errno: 'ENOENT',
    });
  });

  test('runs on while the program’s thread is busy', async () => {
    const { a, b } = await openPair({ device: { engine: 'worker' } });
    pattern(a.memory, 9);
    a.memory[MIB - 1] = 1;
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: [{ mr: a.mr, length: MIB }], remote: b.mr.remote() });
    // Spinning on memory: nothing in this thread's event loop turns meanwhile.
    const end = performance.now() + MINUTES;
    while (b.memory[MIB - 1] === 0 && performance.now() < end);
    expect(sha256(b.memory.subarray(0, MIB))).toBe(sha256(a.memory.subarray(0, MIB)));
  });
});

/** Bytes that wait in the UDP sockets of an address of IPv4. */
function waitingBytes(address: string): number {
  const hex = Buffer.from(address.split('.').map(Number)).readUInt32LE().toString(16).padStart(8, '0');
  const row = new RegExp(`^ *\\d+: ${hex}:\\w+ \\w+:\\w+ \\w+ \\w+:(\\w+)`, 'gim');
  const rows = readFileSync('/proc/net/udp', 'utf8').matchAll(row);
  return [...rows].reduce((sum, [, bytes]) => sum + Number.parseInt(bytes, 16), 0);
}

test('a thread that stood still finds the ACKs that wait for it, and counts no retry', async () => {
  const a = await openSide(host(1), {});
  const b = await openSide(host(2), { engine: 'worker' });
  const impatient = { timeout: 8, retryCnt: 0 };
  await a.qp.connect(b.qp.connectionData(), impatient);
  await b.qp.connect(a.qp.connectionData(), impatient);
  const sgList = [{ mr: a.mr, length: 8 * 1024 }];
  let stood = 0;
  for (let tries = 0; stood < 3 && tries < 100; tries++) {
    a.memory[0] = tries + 1;
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList, remote: b.mr.remote(), signaled: true });
    if (a.cq.poll().length > 0) continue; // It sends; seldom is the answer there by the end of it.
    stood++;
    while (waitingBytes(host(1)) === 0); // The peer's engine has it, and its ACK is here.
    // Two hundred times the timeout of 1 ms, and only then a turn of the loop.
    const end = performance.now() + 200;
    while (performance.now() < end);
    expect((await a.cq.next()).status).toBe('SUCCESS');
  }
  expect(stood).toBe(3);
  expect(await a.qp.counters()).toMatchObject({ timeouts: 0, retransmittedPackets: 0 });
});

/** Runs a program for `timeout` ms at most; with `linger`, for so many ms after its first output. */
async function program(
  code: string,
  { timeout = 240_000, linger }: { timeout?: number; linger?: number } = {},
) {
  const prelude = `
    import { openDevice } from '@node-roce/verbs-api';
    const [port, a, b] = [${port}, '${host(1)}', '${host(2)}'];
  `;
  // From this folder, so that the package is found.
  const child = spawn(process.execPath, ['--input-type=module', '--eval', prelude + code], {
    cwd: import.meta.dirname,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout,
  });
  let output = '';
  child.stdout.on('data', (chunk) => (output += chunk));
  child.stderr.on('data', (chunk) => (output += chunk));
  if (linger !== undefined) child.stdout.once('data', () => setTimeout(() => child.kill(), linger));
  const [exitCode, signal] = await once(child, 'close');
  return { exitCode, signal, output };
}

describe.each(['inline', 'worker'])('a process with the engine: %s', (engine) => {
  const setUp = `
    const side = async (address) => {
      const device = await openDevice({ address, port, engine: '${engine}' });
      const pd = await device.allocPd();
      const cq = await device.createCq();
      const mr = await pd.registerMr(new SharedArrayBuffer(65536), { access: { remoteWrite: true } });
      const qp = await pd.createQp({ sendCq: cq });
      return { device, cq, mr, qp };
    };
    const x = await side(a), y = await side(b);
    await x.qp.connect(y.qp.connectionData());
    await y.qp.connect(x.qp.connectionData());
    x.qp.postSend({ opcode: 'RDMA_WRITE', signaled: true, sgList: [{ mr: x.mr }], remote: y.mr.remote() });
    console.log((await x.cq.next()).status);
  `;

  test('ends after unref, devices open and a wait under way', async () => {
    const result = await program(`${setUp}
      x.device.unref(); y.device.unref();
      x.cq.wait().then(() => console.log('never'));
    `);
    expect(result).toEqual({ exitCode: 0, signal: null, output: 'SUCCESS\n' });
  });

  test('ends after close', async () => {
    const result = await program(`${setUp} await x.device.close(); await y.device.close();`);
    expect(result).toEqual({ exitCode: 0, signal: null, output: 'SUCCESS\n' });
  });

  test('stays while a device is open', async () => {
    const { signal, output } = await program(`${setUp} x.device.unref().ref(); y.device.unref();`, {
      linger: 1000,
    });
    expect([signal, output]).toEqual(['SIGTERM', 'SUCCESS\n']);
  });
});

test('a command that a worker can not be sent is refused, and holds no process', async () => {
  const { exitCode, output } = await program(`
    const device = await openDevice({ address: a, port, engine: 'worker' });
    const pd = await device.allocPd();
    const qp = await pd.createQp({ sendCq: await device.createCq() });
    await qp.setFilter([() => 1]).catch((error) => console.log(error.code));
    device.unref();
  `);
  expect([output, exitCode]).toEqual(['ERR_ROCE_INVALID_ATTRIBUTE\n', 0]);
});

test('a worker that dies is a fatal event; who waits and who calls hear of it', async () => {
  const { exitCode, output } = await program(`
    import { Worker } from 'node:worker_threads';
    let thread;
    const start = Worker.prototype.ref;
    Worker.prototype.ref = function () { thread = this; return start.call(this); };
    const device = await openDevice({ address: a, port, engine: 'worker' });
    const cq = await device.createCq();
    device.onEvent((event) => console.log('event', event.type));
    const waiting = cq.wait().catch((error) => console.log('wait', error.code));
    await thread.terminate();
    await waiting;
    await device.allocPd().catch((error) => console.log('call', error.code));
    await device.close();
  `);
  expect(output).toBe('event DEVICE_FATAL\nwait ERR_ROCE_DEVICE_FATAL\ncall ERR_ROCE_DEVICE_FATAL\n');
  expect(exitCode).toBe(0);
});
