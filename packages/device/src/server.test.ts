/** A device and programs that break every rule: they harm themselves alone. */
import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createRandom } from '@node-roce/wire';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { host } from '../../link/testing/loopback.ts';
import { CALLS, type CallName, HEADER_BYTES, PROTOCOL_VERSION } from './messages.ts';
import { DeviceServer } from './server.ts';
import { deviceStatus } from './status.ts';

const { EFAULT, EINVAL, EOPNOTSUPP } = constants.errno;
const folder = mkdtempSync(join(tmpdir(), 'roce-device-'));
const logged: string[] = [];
let server: DeviceServer;
/** Calls by their number. These messages are written by hand, number by number, so that wrong ones can be. */
const Call = Object.fromEntries(Object.entries(CALLS).map(([name, { number }]) => [name, number])) as Record<
  CallName,
  number
>;

beforeAll(async () => {
  server = await DeviceServer.listen({
    address: host(1),
    path: join(folder, 'a.sock'),
    log: (line) => logged.push(line),
  });
});
afterAll(async () => {
  await server.close();
  expect(readdirSync(folder)).toEqual([]);
  rmSync(folder, { recursive: true });
});

const u32 = (...values: number[]) => {
  const bytes = Buffer.alloc(values.length * 4);
  for (const [i, value] of values.entries()) bytes.writeUInt32LE(value, i * 4);
  return bytes;
};
const u64 = (...values: bigint[]) => {
  const bytes = Buffer.alloc(values.length * 8);
  for (const [i, value] of values.entries()) bytes.writeBigUInt64LE(value, i * 8);
  return bytes;
};

/** A reply's numbers, one after the other. */
class Numbers {
  readonly #bytes: Buffer;
  #at = 0;
  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }
  u32(): number {
    this.#at += 4;
    return this.#bytes.readUInt32LE(this.#at - 4);
  }
  end(): void {
    expect(this.#at).toBe(this.#bytes.length);
  }
}

/** A program that speaks the protocol as a library does, or as none would. */
class Client {
  readonly socket: Socket;
  token = Buffer.alloc(16);
  ended = false;
  #data = Buffer.alloc(0);
  #wake = () => {};

  constructor() {
    this.socket = connect(server.path);
    this.socket.on('data', (data) => {
      this.#data = Buffer.concat([this.#data, data]);
      this.#wake();
    });
    this.socket.on('error', () => {});
    this.socket.on('close', () => {
      this.ended = true;
      this.#wake();
    });
  }

  async take(length: number): Promise<Buffer> {
    while (this.#data.length < length) {
      if (this.ended) throw new Error('the device ended the connection');
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const bytes = this.#data.subarray(0, length);
    this.#data = this.#data.subarray(length);
    return bytes;
  }

  async call(call: number, ...parts: Buffer[]): Promise<{ errno: number; reply: Numbers }> {
    const payload = Buffer.concat(parts);
    this.socket.write(Buffer.concat([u32(payload.length, call), payload]));
    const head = await this.take(HEADER_BYTES);
    return { errno: head.readUInt32LE(4), reply: new Numbers(await this.take(head.readUInt32LE(0))) };
  }

  async hello(share = Buffer.alloc(16)): Promise<this> {
    const payload = Buffer.concat([u32(PROTOCOL_VERSION), Buffer.alloc(16, 'x'), share, Buffer.alloc(8)]);
    this.socket.write(Buffer.concat([u32(payload.length, Call.HELLO), payload]));
    // The bytes that carry the descriptors, then the reply: token, and shape of the doorbells.
    await this.take(4 + HEADER_BYTES);
    this.token = Buffer.from(await this.take(16));
    await this.take(12);
    return this;
  }

  async make(call: number, ...parts: Buffer[]): Promise<number> {
    const { errno, reply } = await this.call(call, ...parts);
    expect(errno).toBe(0);
    return reply.u32();
  }

  async close(): Promise<void> {
    this.socket.destroy();
    if (!this.ended) await once(this.socket, 'close');
  }
}

const until = (is: () => boolean) => expect.poll(is).toBe(true);

/** A queue pair of RC with its resources. */
async function queuePair(client: Client) {
  const pd = await client.make(Call.ALLOC_PD);
  const cq = await client.make(Call.CREATE_CQ, u32(16, 0, 0));
  const qp = await client.make(Call.CREATE_QP, u32(pd, 2, cq, cq, 0, 0), u32(16, 16, 1, 1, 64));
  return { pd, cq, qp };
}

describe('a device for programs', () => {
  test('the socket is its owner’s alone, in a folder that is its owner’s alone', async () => {
    expect(statSync(server.path).mode & 0o777).toBe(0o600);
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    const open = mkdtempSync(join(tmpdir(), 'roce-open-'));
    chmodSync(open, 0o755);
    await expect(DeviceServer.listen({ address: host(2), path: join(open, 'b.sock') })).rejects.toThrow(
      'mode 700',
    );
    rmSync(open, { recursive: true });
  });

  test('objects go with their program', async () => {
    const client = await new Client().hello();
    const { pd } = await queuePair(client);
    const address = 0x7000_0000_1000n;
    expect((await client.call(Call.REG_MR, u32(pd, 1), u64(address, 8192n, address), u32(0))).errno).toBe(0);
    expect(server.status).toEqual({ programs: 1, objects: 4 });
    expect(await deviceStatus(server.path)).toMatchObject({
      address: host(1),
      programs: [{ name: expect.stringMatching(/^x{16} \(process \d+\)$/), objects: 4 }],
      counters: { sentPackets: 0, rxe: {}, link: {} },
    });
    await client.close();
    await until(() => server.status.programs === 0);
    expect(logged.at(-1)).toMatch(/^x{16} \(process \d+\): gone, with 4 objects$/);
  });

  test('descriptors and mappings do not grow with programs', async () => {
    const mapped = () => readdirSync('/proc/self/map_files').length;
    const once = async () => {
      const client = await new Client().hello();
      const { pd } = await queuePair(client);
      const address = 0x7000_0000_0000n;
      for (let i = 0n; i < 8n; i++)
        await client.make(Call.REG_MR, u32(pd, 1), u64(address + i, 70_000n, address + i), u32(0));
      await client.close();
      await until(() => server.status.programs === 0);
    };
    for (let i = 0; i < 3; i++) await once();
    const descriptors = readdirSync('/proc/self/fd').length;
    const before = mapped();
    for (let i = 0; i < 20; i++) await once();
    expect(readdirSync('/proc/self/fd').length).toBeLessThanOrEqual(descriptors);
    expect(mapped()).toBeLessThan(before + 20);
  });

  test('a handle of another program, of another kind, or of nothing, is EINVAL', async () => {
    const [mine, other] = [await new Client().hello(), await new Client().hello()];
    const { pd, cq, qp } = await queuePair(mine);
    for (const handle of [pd, cq, qp, 0, 77, 0xffff_ffff]) {
      expect((await other.call(Call.DESTROY, u32(handle))).errno).toBe(EINVAL);
      expect((await other.call(Call.RESIZE_CQ, u32(handle, 1))).errno).toBe(EINVAL);
      expect((await other.call(Call.QUERY_QP, u32(handle, 0))).errno).toBe(EINVAL);
    }
    expect((await mine.call(Call.RESIZE_CQ, u32(pd, 1))).errno).toBe(EINVAL);
    expect((await mine.call(Call.QUERY_QP, u32(cq, 0))).errno).toBe(EINVAL);
    expect((await mine.call(Call.CREATE_QP, u32(pd, 2, pd, cq, 0, 0), u32(1, 1, 1, 1, 0))).errno).toBe(
      EINVAL,
    );
    expect((await mine.call(Call.RESIZE_CQ, u32(cq, 0xffff_ffff))).errno).toBe(EINVAL);
    await mine.close();
    await other.close();
  });

  test('a failure of one program is not shown to another', async () => {
    const [one, two, three] = await Promise.all([0, 1, 2].map(() => new Client().hello()));
    const [a, c] = [await queuePair(one), await queuePair(three)];
    const XRC_SEND = 9;
    const create = (client: Client, { pd, cq }: typeof a) =>
      client.call(Call.CREATE_QP, u32(pd, XRC_SEND, cq, cq, 0, 0), u32(16, 16, 1, 1, 64));
    for (let i = 0; i < 50; i++) {
      const calls = [create(one, a), two.call(Call.CREATE_CQ, u32(0xffff_ffff, 0, 0)), create(three, c)];
      const answers = await Promise.all(calls);
      expect(answers.map(({ errno }) => errno)).toEqual([EOPNOTSUPP, EINVAL, EOPNOTSUPP]);
    }
    for (const client of [one, two, three]) await client.close();
  });

  test('refuses memory that no program can have', async () => {
    const client = await new Client().hello();
    const pd = await client.make(Call.ALLOC_PD);
    const register = async (address: bigint, length: bigint) =>
      (await client.call(Call.REG_MR, u32(pd, 1), u64(address, length, address), u32(0))).errno;
    const end = 2n ** 47n;
    expect(await register(end, 1n)).toBe(EFAULT);
    expect(await register(end - 1n, 2n)).toBe(EFAULT);
    expect(await register(2n ** 64n - 1n, 2n)).toBe(EFAULT);
    expect(await register(4096n, 0n)).toBe(EFAULT);
    expect(await register(4096n, 2n ** 64n - 1n)).toBe(EFAULT);
    expect(await register(4096n, 2n ** 32n + 1n)).toBe(EFAULT);
    expect(await register(4095n, 2n ** 32n)).toBe(EFAULT);
    expect(await register(end - 1n, 1n)).toBe(0);
    await client.close();
  });

  test('two contexts of a process share its memory, and nobody else can', async () => {
    const one = await new Client().hello();
    const two = await new Client().hello(one.token);
    const stranger = await new Client().hello(randomBytes(16));
    expect(two.token).not.toEqual(one.token);
    // The memory of the first stays when its context goes.
    await one.close();
    const pd = await two.make(Call.ALLOC_PD);
    await two.make(Call.REG_MR, u32(pd, 1), u64(4096n, 4096n, 4096n), u32(0));
    await two.close();
    await stranger.close();
    await until(() => server.status.programs === 0);
  });

  test('events are only for who has the token of a program', async () => {
    const client = await new Client().hello();
    const channel = await client.make(Call.CREATE_CHANNEL);
    const listen = async (token: Buffer, handle: number) => {
      const events = new Client();
      const answer = await events.call(Call.LISTEN, token, u32(handle)).catch(() => undefined);
      await events.close();
      return answer?.errno;
    };
    expect(await listen(client.token, channel)).toBe(0);
    expect(await listen(client.token, channel + 1)).toBeUndefined();
    expect(await listen(Buffer.alloc(16), channel)).toBeUndefined();
    expect(await listen(randomBytes(16), 0)).toBeUndefined();
    await client.close();
  });

  test('a message that follows no rule ends its program, and no other', async () => {
    const good = await new Client().hello();
    const { cq } = await queuePair(good);
    const bad: [what: string, bytes: Buffer][] = [
      ['a length beyond the limit', u32(0xffff_ffff, Call.RESIZE_CQ)],
      ['an unknown call', u32(0, 99)],
      ['HELLO for the second time', u32(0, Call.HELLO)],
      ['a payload that is too short', Buffer.concat([u32(4, Call.RESIZE_CQ), u32(2)])],
      ['a payload that is too long', Buffer.concat([u32(12, Call.RESIZE_CQ), u32(2, 1, 0)])],
    ];
    for (const [what, bytes] of bad) {
      const client = await new Client().hello();
      await queuePair(client);
      client.socket.write(bytes);
      await until(() => client.ended);
      await until(() => server.status.programs === 1);
      expect(logged.at(-2), what).toContain('broke the protocol');
    }
    expect(server.status).toEqual({ programs: 1, objects: 3 });
    expect((await good.call(Call.RESIZE_CQ, u32(cq, 1))).errno).toBe(0);
    await good.close();
  });

  test('names the limit of the size of files, which would end the device by SIGXFSZ', () => {
    const code =
      "import('@node-roce/dgram-native').then(({ createSharedFile }) => createSharedFile(2 ** 40))";
    const { status, stderr } = spawnSync('prlimit', ['--fsize=1000000', process.execPath, '-e', code], {
      cwd: import.meta.dirname,
      encoding: 'utf8',
    });
    expect(status).toBe(1);
    expect(stderr).toContain('ulimit -f');
  });

  test('a program that is gone before its answer is no fault of the device', async () => {
    for (let i = 0; i < 20; i++) {
      const { socket } = new Client();
      const payload = Buffer.concat([u32(PROTOCOL_VERSION), Buffer.alloc(16, 'y'), Buffer.alloc(16 + 8)]);
      socket.write(Buffer.concat([u32(payload.length, Call.HELLO), payload]), () => socket.destroy());
      await once(socket, 'close');
    }
    await until(() => server.status.programs === 0 && server.connections === 0);
    expect(logged.filter((line) => line.includes('fault here'))).toEqual([]);
  });

  test('a program that comes while no descriptor is left for its rings leaves nothing behind', async () => {
    const options = { address: '127.0.0.64', path: join(folder, 'd.sock') };
    const own = await DeviceServer.listen({ ...options, log: (line) => logged.push(line) });
    const limit = (soft: number | string) => `prlimit --pid ${process.pid} --nofile=${soft}:`;
    const [, usual] = /Max open files +(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))!;
    for (let i = 0; i < 3; i++) {
      const socket = connect(options.path);
      socket.on('error', () => {});
      await until(() => own.connections === 1);
      // Starts now, as this process will have no descriptors for it.
      const restorer = spawn('sh', ['-c', `read line && ${limit(usual)}`], {
        stdio: ['pipe', 'ignore', 'ignore'],
      });
      // The one that `readdirSync` has stays free, for the program's memory: that of its rings has none.
      const used = new Set(readdirSync('/proc/self/fd').map(Number));
      let least = 0;
      while (used.has(least)) least++;
      spawnSync('sh', ['-c', limit(least)]);
      const payload = Buffer.concat([u32(PROTOCOL_VERSION), Buffer.alloc(32 + 8)]);
      socket.write(Buffer.concat([u32(payload.length, Call.HELLO), payload]));
      await once(socket, 'close');
      restorer.stdin!.end('restore\n');
      await once(restorer, 'exit');
    }
    expect(logged.filter((line) => line.includes('EMFILE')).length).toBe(3);
    logged.length = 0;
    await own.close();
    // A context that was left open would keep UDP port 4791 of the address.
    expect(readFileSync('/proc/net/udp', 'utf8')).not.toContain('4000007F:12B7');
  });

  test('events go to the connection that listened last', async () => {
    const client = await new Client().hello();
    const channel = await client.make(Call.CREATE_CHANNEL);
    const listen = async (handle: number) => {
      const events = new Client();
      expect((await events.call(Call.LISTEN, client.token, u32(handle))).errno).toBe(0);
      return events;
    };
    const [first, second] = [await listen(channel), await listen(channel)];
    await until(() => first.ended);
    expect(second.ended).toBe(false);
    await second.close();
    const third = await listen(channel);
    expect(third.ended).toBe(false);
    expect((await client.call(Call.DESTROY, u32(channel))).errno).toBe(0);
    await until(() => third.ended);
    await client.close();
  });

  test('queues that are resized, made and destroyed get room for ever', async () => {
    const client = await new Client().hello();
    const pd = await client.make(Call.ALLOC_PD);
    // The largest queues: one at a time fits many times over, all of them would not.
    for (let i = 0; i < 40; i++) {
      const cq = await client.make(Call.CREATE_CQ, u32(1 << 20, 0, 0));
      await client.make(Call.RESIZE_CQ, u32(cq, 1 << 19));
      const srq = await client.make(Call.CREATE_SRQ, u32(pd, 32_768, 32, 0, 0, 0, 0));
      const qp = await client.make(Call.CREATE_QP, u32(pd, 2, cq, cq, srq, 0), u32(32_768, 0, 32, 0, 512));
      for (const handle of [qp, srq, cq])
        expect((await client.call(Call.DESTROY, u32(handle))).errno).toBe(0);
    }
    const cq = await client.make(Call.CREATE_CQ, u32(16, 0, 0));
    const srq = await client.make(Call.CREATE_SRQ, u32(pd, 16, 32, 0, 0, 0, 0));
    const IBV_SRQ_MAX_WR = 1;
    for (let i = 0; i < 30; i++) {
      expect((await client.call(Call.RESIZE_CQ, u32(cq, 1 << (19 + (i % 2))))).errno).toBe(0);
      const size = 32_768 >> (i % 2);
      expect((await client.call(Call.MODIFY_SRQ, u32(srq, IBV_SRQ_MAX_WR, size, 0))).errno).toBe(0);
    }
    for (const handle of [srq, cq]) expect((await client.call(Call.DESTROY, u32(handle))).errno).toBe(0);
    const { ENOMEM } = constants.errno;
    const answers: number[] = [];
    while (answers.length < 40 && !answers.includes(ENOMEM))
      answers.push((await client.call(Call.CREATE_CQ, u32(1 << 20, 0, 0))).errno);
    expect(answers.slice(0, -1).every((errno) => errno === 0)).toBe(true);
    expect(answers.at(-1)).toBe(ENOMEM);
    expect((await client.call(Call.DESTROY, u32(pd))).errno).toBe(0);
    await client.close();
  });

  test('operations on a list of tags are checked, and a list that is longer than its message ends the program', async () => {
    const client = await new Client().hello();
    const { pd, cq } = await queuePair(client);
    const create = (...tail: number[]) => client.call(Call.CREATE_SRQ, u32(pd, 16, 2, 0, ...tail));
    expect((await create(pd, 4, 0)).errno).toBe(EINVAL);
    expect((await create(cq, 0, 0)).errno).toBe(EINVAL);
    expect((await create(cq, 2000, 0)).errno).toBe(EINVAL);
    expect((await create(cq, 0xffff_ffff, 0)).errno).toBe(constants.errno.ENOMEM);
    expect((await create(cq, 4, 0xffff_ffff)).errno).toBe(EINVAL);
    const srq = (await create(cq, 2, 4)).reply.u32();
    const plain = (await create(0, 0, 0)).reply.u32();
    const operation = (handle: number, opcode: number, flags: number, tag = 0) =>
      client.call(
        Call.POST_SRQ_OP,
        u32(handle),
        u64(1n),
        u32(opcode, flags, 0, tag),
        u64(0n, 0n, 0n),
        u32(0),
      );
    const element = [u64(0n), u32(0x7fff_ffff, 1)];
    const addition = (elements: number) => [
      ...[u32(srq), u64(1n), u32(0, 1, 0, 0), u64(2n, 3n, 2n ** 64n - 1n), u32(elements)],
      ...Array.from({ length: elements }, () => element).flat(),
    ];
    const add = (elements: number) => client.call(Call.POST_SRQ_OP, ...addition(elements));
    const { reply, errno } = await add(2);
    expect(errno).toBe(0);
    const handle = reply.u32();
    expect((await add(3)).errno).toBe(EINVAL);
    expect((await add(0)).errno).toBe(0);
    expect((await add(0)).errno).toBe(constants.errno.ENOMEM);
    for (const opcode of [3, 0xffff_ffff]) expect((await operation(srq, opcode, 0)).errno).toBe(EOPNOTSUPP);
    // A removal of nothing completes in error, and takes a place of the completion queue, which overruns in the end.
    for (const tag of [handle, handle, 0xffff_ffff])
      expect((await operation(srq, 1, 0xff, tag)).errno).toBe(0);
    for (let i = 0; i < 40; i++) expect((await operation(srq, 2, 1)).errno).toBe(0);
    for (const other of [plain, pd, cq]) expect((await operation(other, 2, 1)).errno).toBe(EINVAL);
    expect((await client.call(Call.DESTROY, u32(cq))).errno).toBe(constants.errno.EBUSY);
    const cut = Buffer.concat(addition(2)).subarray(0, -4);
    client.socket.write(Buffer.concat([u32(cut.length, Call.POST_SRQ_OP), cut]));
    await until(() => client.ended);
    await until(() => server.status.programs === 0);
  });

  test('a program has so many tags in all its lists, and gets them back with a list', async () => {
    const client = await new Client().hello();
    const { pd, cq } = await queuePair(client);
    const create = () => client.call(Call.CREATE_SRQ, u32(pd, 1, 1, 0, cq, 1024, 0));
    const lists: number[] = [];
    for (let i = 0; i < 64; i++) lists.push((await create()).reply.u32());
    expect((await create()).errno).toBe(constants.errno.ENOMEM);
    expect((await client.call(Call.CREATE_SRQ, u32(pd, 1, 1, 0, 0, 1024, 0))).errno).toBe(0);
    expect((await client.call(Call.DESTROY, u32(lists[0]))).errno).toBe(0);
    expect((await create()).errno).toBe(0);
    expect((await create()).errno).toBe(constants.errno.ENOMEM);
    await client.close();
    await until(() => server.status.programs === 0);
  });

  test('a queue pair that answers rendezvous has no send queue to write to', async () => {
    const client = await new Client().hello();
    const { pd, cq } = await queuePair(client);
    const srq = await client.make(Call.CREATE_SRQ, u32(pd, 16, 2, 0, cq, 4, 0));
    const create = u32(pd, 2, cq, cq, srq, 0);
    const { errno, reply } = await client.call(Call.CREATE_QP, create, u32(0, 0, 1, 1, 0));
    expect(errno).toBe(0);
    const [qp, , ...rest] = Array.from({ length: 15 }, () => reply.u32());
    // Sizes of its queues, of which the first is of sends, and the places of both rings.
    expect([rest[0], rest[1], ...rest.slice(5)]).toEqual(new Array(10).fill(0));
    reply.end();
    expect((await client.call(Call.DESTROY, u32(qp))).errno).toBe(0);
    await client.close();
    await until(() => server.status.programs === 0);
  });

  test('random bytes of many programs leave the device as it was', async () => {
    const good = await new Client().hello();
    const { cq } = await queuePair(good);
    const random = createRandom(1);
    for (let round = 0; round < 60; round++) {
      const client = await new Client().hello();
      const { pd, cq: own, qp } = await queuePair(client);
      const tags = await client.make(Call.CREATE_SRQ, u32(pd, 16, 1, 0, own, 16, 0));
      for (let i = 0; i < 20 && !client.ended; i++) {
        const length = (round * 37 + i * 11) % 240;
        const payload = Buffer.from(Array.from({ length }, () => random.next()));
        // Half of them begin with a handle that is right: checks further in are reached.
        if (payload.length >= 4 && i % 2 === 0) payload.writeUInt32LE([pd, own, qp, tags][i % 4], 0);
        client.socket.write(Buffer.concat([u32(payload.length, 3 + ((round + i) % 21)), payload]));
        await new Promise(setImmediate);
      }
      await client.close();
    }
    await until(() => server.status.programs === 1);
    expect(server.status.objects).toBe(3);
    expect((await good.call(Call.RESIZE_CQ, u32(cq, 16))).errno).toBe(0);
    expect(logged.filter((line) => line.includes('fault here'))).toEqual([]);
    await good.close();
  });

  test('refuses a library of another version', async () => {
    const client = new Client();
    const payload = Buffer.concat([u32(PROTOCOL_VERSION + 1), Buffer.alloc(32 + 8)]);
    client.socket.write(Buffer.concat([u32(payload.length, Call.HELLO), payload]));
    await until(() => client.ended);
  });

  test('refuses a second device at the same socket, and names the socket', async () => {
    await expect(DeviceServer.listen({ address: host(3), path: server.path })).rejects.toThrow(
      'answers there already',
    );
    await expect(
      DeviceServer.listen({ address: '192.0.2.77', path: join(folder, 'c.sock') }),
    ).rejects.toThrow('no interface');
  });
});
