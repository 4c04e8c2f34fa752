/**
 * FLUSH and ATOMIC_WRITE (IBTA vol 1 annex A19) with the real rxe. That of Linux 6.12 has them, with habits of its own (docs/quirks.md); that of
 * 6.1 drops both (errors.test.ts), and this file is left out there. No queue pair of rxe here has a `max_dest_rd_atomic` of 0: a FLUSH to one may harm its kernel.
 */
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { Access, type AccessInit, type SendWr } from '@node-roce/verbs-api';
import { afterEach, describe, expect, inject, onTestFinished, test } from 'vitest';
import type { AgentCompletion } from './harness/agent.ts';
import { type Guarded, LinkUp, type LinkUpOptions } from './harness/connect.ts';
import { Guest } from './harness/guest.ts';
import type { TheirRegion } from './harness/operations.ts';
import { WireCapture, type WirePacket } from './harness/wire.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;
const [ACK, FLUSH, ATOMIC_WRITE, READ_RESPONSE_ONLY] = [0x11, 0x1c, 0x1d, 0x10];
const [INVALID_REQUEST, REMOTE_ACCESS] = [0x61, 0x62];
const [REM_INV_REQ_ERR, REM_ACCESS_ERR, RETRY_EXC_ERR] = [9, 10, 12];
const { REMOTE_READ, REMOTE_WRITE, FLUSH_GLOBAL, FLUSH_PERSISTENT } = Access;
const OURS_OPEN = REMOTE_READ | REMOTE_WRITE | FLUSH_GLOBAL | FLUSH_PERSISTENT;
const THEIRS_OPEN = 'REMOTE_WRITE,REMOTE_READ,FLUSH_GLOBAL,FLUSH_PERSISTENT';
const COUNT = 10_000;

let capture: WireCapture | undefined;
afterEach(({ task }) => {
  if (task.result?.state === 'fail') capture?.keep(task.name);
  capture?.discard();
  capture = undefined;
});

const make = (options: LinkUpOptions = {}) =>
  LinkUp.make(guest, {
    open: { flushIcrc: 'rxe' },
    connect: { access: OURS_OPEN },
    ...options,
    theirs: { placement: 1, access: THEIRS_OPEN, ...options.theirs },
  });

/** With ROCE_RECORD, a directory: keeps the capture, for test/fixtures/placement (docs/interop.md). */
function record(name: string): void {
  const { ROCE_RECORD: directory } = process.env;
  if (directory) copyFileSync(capture!.file, join(directory, `${name}.pcap`));
}

const naks = (packets: readonly WirePacket[]) =>
  packets
    .filter(({ opcode, payload }) => opcode === ACK && payload[12] >> 5 !== 0)
    .map(({ source, payload }) => ({ source, syndrome: payload[12] }));

describe('ours to rxe', () => {
  interface World {
    link: LinkUp;
    ours: Guarded;
    theirs: TheirRegion;
  }
  async function world(
    link: LinkUp,
    access = 'LOCAL_WRITE,REMOTE_WRITE,REMOTE_READ,FLUSH_GLOBAL',
  ): Promise<World> {
    return {
      link,
      ours: await link.memory(4096, { seed: 1 }),
      theirs: await link.agent.mr({ size: 4096, access, seed: 2 }),
    };
  }
  type Change = { offset?: number; keyXor?: number; flush?: Extract<SendWr, { opcode: 'FLUSH' }>['flush'] };
  const request = (
    opcode: 'FLUSH' | 'ATOMIC_WRITE',
    { ours, theirs }: World,
    { offset = 0, keyXor = 0, flush = { length: 4096 } }: Change = {},
  ): SendWr => {
    const remote = { addr: theirs.address + BigInt(offset), rkey: (theirs.rkey ^ keyXor) >>> 0 };
    return opcode === 'FLUSH'
      ? { wrId: 1, opcode, remote, flush, signaled: true }
      : { wrId: 1, opcode, remote, sgList: [{ mr: ours.mr, length: 8 }], signaled: true };
  };

  test('ATOMIC_WRITE: the eight bytes arrive, and no others', async () => {
    await using link = await make();
    const at = await world(link);
    const before = await link.agent.call<{ hex: string }>('read', { mr: at.theirs.mr });
    link.qp.postSend(request('ATOMIC_WRITE', at, { offset: 16 }));
    expect(await link.cq.next()).toMatchObject({ status: 'SUCCESS', opcode: 'ATOMIC_WRITE' });
    const { hex } = await link.agent.call<{ hex: string }>('read', { mr: at.theirs.mr });
    const written = Buffer.from(at.ours.bytes.subarray(0, 8)).toString('hex');
    expect(hex).toBe(before.hex.slice(0, 32) + written + before.hex.slice(48));
  });

  test.each([
    { what: 'a range', flush: { length: 100 } },
    { what: 'a range of no bytes', flush: { length: 0 } },
    { what: 'the region, whatever the range', flush: { length: 0x7fff_ffff, level: 'MR' as const } },
  ])('FLUSH of $what: answered, after the WRITE before it', async ({ flush }) => {
    await using link = await make();
    const at = await world(link);
    capture = await WireCapture.start(address);
    link.qp.postSend({
      wrId: 0,
      opcode: 'RDMA_WRITE',
      sgList: [{ mr: at.ours.mr, length: 4096 }],
      remote: { addr: at.theirs.address, rkey: at.theirs.rkey },
    });
    link.qp.postSend(request('FLUSH', at, { flush }));
    expect(await link.cq.next()).toMatchObject({ wrId: 1n, status: 'SUCCESS', opcode: 'FLUSH' });
    expect(await link.agent.sha256(at.theirs.mr)).toBe(at.ours.sha256);
    const answer = (await capture.stop()).find((p) => p.opcode === READ_RESPONSE_ONLY)!;
    expect([answer.payload.length, answer.payload[12], answer.icrcOk]).toEqual([16, 0x1f, true]);
  });

  const NAKS = [
    {
      what: 'ATOMIC_WRITE, misaligned',
      opcode: 'ATOMIC_WRITE',
      change: { offset: 4 },
      syndrome: INVALID_REQUEST,
    },
    {
      what: 'ATOMIC_WRITE, wrong key',
      opcode: 'ATOMIC_WRITE',
      change: { keyXor: 0xffff00 },
      syndrome: REMOTE_ACCESS,
    },
    {
      what: 'ATOMIC_WRITE, outside',
      opcode: 'ATOMIC_WRITE',
      change: { offset: 4096 },
      syndrome: REMOTE_ACCESS,
    },
    {
      what: 'ATOMIC_WRITE, no right on the region',
      opcode: 'ATOMIC_WRITE',
      region: 'LOCAL_WRITE,REMOTE_READ',
      syndrome: REMOTE_ACCESS,
    },
    {
      what: 'ATOMIC_WRITE, no right on the queue pair',
      opcode: 'ATOMIC_WRITE',
      queuePair: 'REMOTE_READ,FLUSH_GLOBAL',
      syndrome: INVALID_REQUEST,
    },
    { what: 'FLUSH, wrong key', opcode: 'FLUSH', change: { keyXor: 0xffff00 }, syndrome: REMOTE_ACCESS },
    {
      what: 'FLUSH of no bytes, wrong key',
      opcode: 'FLUSH',
      change: { keyXor: 0xffff00, flush: { length: 0 } },
      syndrome: REMOTE_ACCESS,
    },
    { what: 'FLUSH, outside', opcode: 'FLUSH', change: { flush: { length: 4097 } }, syndrome: REMOTE_ACCESS },
    {
      what: 'FLUSH of no bytes, outside',
      opcode: 'FLUSH',
      change: { offset: 8192, flush: { length: 0 } },
      syndrome: REMOTE_ACCESS,
    },
    {
      what: 'FLUSH of more than 2^31 bytes',
      opcode: 'FLUSH',
      change: { flush: { length: 2 ** 31 + 1 } },
      syndrome: INVALID_REQUEST,
    },
    {
      what: 'flushOfARegionHasALength: one with a range of more than 2^31 bytes',
      opcode: 'FLUSH',
      change: { flush: { length: 2 ** 31 + 1, level: 'MR' } },
      syndrome: INVALID_REQUEST,
    },
    {
      what: 'FLUSH, no right on the region',
      opcode: 'FLUSH',
      region: 'LOCAL_WRITE,REMOTE_WRITE',
      syndrome: REMOTE_ACCESS,
    },
    {
      what: 'FLUSH, no right on the queue pair',
      opcode: 'FLUSH',
      queuePair: 'REMOTE_WRITE,REMOTE_READ',
      syndrome: INVALID_REQUEST,
    },
    {
      what: 'FLUSH for persistence',
      opcode: 'FLUSH',
      change: { flush: { length: 64, type: 'PERSISTENT' } },
      syndrome: REMOTE_ACCESS,
    },
  ] as const;
  test.each(NAKS)('$what: one NAK, and the status that belongs to it', async (row) => {
    const { opcode, syndrome } = row;
    const { change, region, queuePair } = row as { change?: Change; region?: string; queuePair?: string };
    await using link = await make({ theirs: queuePair === undefined ? {} : { access: queuePair } });
    const at = await world(link, region);
    const before = await link.agent.sha256(at.theirs.mr);
    capture = await WireCapture.start(address);
    link.qp.postSend(request(opcode, at, change));
    const status = syndrome === INVALID_REQUEST ? 'REM_INV_REQ_ERR' : 'REM_ACCESS_ERR';
    expect((await link.cq.next()).status).toBe(status);
    expect(naks(await capture.stop())).toEqual([{ source: address.ip4, syndrome }]);
    expect(await link.agent.sha256(at.theirs.mr)).toBe(before);
  });

  test('a region for persistence is not registered: no memory of the guest is persistent', async () => {
    await using link = await make();
    const wanted = link.agent.mr({ size: 4096, access: 'LOCAL_WRITE,FLUSH_PERSISTENT' });
    await expect(wanted).rejects.toThrow('ibv_reg_mr');
  });

  test(`${COUNT} of each, sixteen outstanding`, { timeout: 300_000 }, async () => {
    await using link = await make();
    const at = await world(link);
    const value = new BigUint64Array(at.ours.bytes.buffer, at.ours.bytes.byteOffset, 1);
    for (const opcode of ['FLUSH', 'ATOMIC_WRITE'] as const) {
      for (let posted = 0, done = 0; done < COUNT; done++) {
        for (; posted < COUNT && posted - done < 16; posted++)
          link.qp.postSend({ ...request(opcode, at), wrId: posted });
        const completion = await link.cq.next();
        expect([completion.status, completion.wrIdNumber]).toEqual(['SUCCESS', done]);
      }
    }
    value[0] = 0x0123_4567_89ab_cdefn;
    expect(
      (
        await link.qp.atomicWrite(
          { mr: at.ours.mr, length: 8 },
          { addr: at.theirs.address, rkey: at.theirs.rkey },
        )
      ).status,
    ).toBe('SUCCESS');
    expect(await link.agent.call('read', { mr: at.theirs.mr, length: 8 })).toEqual({
      hex: 'efcdab8967452301',
    });
  });
});

describe('rxe to ours', () => {
  interface World {
    link: LinkUp;
    ours: Guarded;
  }
  async function world(
    link: LinkUp,
    access: AccessInit = { remoteWrite: true, flushGlobal: true },
  ): Promise<World> {
    return { link, ours: await link.memory(4096, { seed: 1, access }) };
  }
  type Change = { offset?: number; keyXor?: number; length?: number; type?: number; level?: number };
  const keys = (opcode: 'FLUSH' | 'ATOMIC_WRITE', { link, ours }: World, change: Change = {}) => {
    const { offset = 0, keyXor = 0, length = 4096, type = 1, level = 0 } = change;
    return {
      qp: link.theirQp,
      wr_id: 1,
      opcode,
      remote_addr: ours.mr.addr + BigInt(offset),
      rkey: (ours.mr.rkey ^ keyXor) >>> 0,
      ...(opcode === 'FLUSH' ? { length, type, level } : { value: '0102030405060708' }),
    };
  };
  const one = async (
    world: World,
    opcode: 'FLUSH' | 'ATOMIC_WRITE',
    change?: Change,
  ): Promise<AgentCompletion> => {
    await world.link.agent.call('post_send', keys(opcode, world, change));
    return (await world.link.agent.poll())[0];
  };

  test('ATOMIC_WRITE: the eight bytes arrive, and no others', async () => {
    await using link = await make();
    const at = await world(link);
    const expected = at.ours.bytes.slice();
    expected.set([1, 2, 3, 4, 5, 6, 7, 8], 16);
    expect(await one(at, 'ATOMIC_WRITE', { offset: 16 })).toMatchObject({
      status: 0,
      opcode: 'ATOMIC_WRITE',
    });
    expect(Buffer.from(at.ours.bytes).equals(expected)).toBe(true);
    expect(at.ours.guardsIntact).toBe(true);
  });

  test.each([
    { what: 'a range', change: { length: 100 } },
    { what: 'a range of no bytes', change: { length: 0 } },
    { what: 'a range, for nothing', change: { type: 0 } },
    { what: 'the region, whatever the range', change: { length: 0xffff_ffff, level: 1 } },
  ])('FLUSH of $what: answered', async ({ change }) => {
    await using link = await make();
    const at = await world(link);
    capture = await WireCapture.start(address);
    expect(await one(at, 'FLUSH', change)).toMatchObject({ status: 0, opcode: 'FLUSH' });
    const packets = await capture.stop();
    expect(packets.map((p) => p.opcode)).toEqual([FLUSH, READ_RESPONSE_ONLY]);
  });

  const NAKS = [
    {
      what: 'ATOMIC_WRITE, misaligned',
      opcode: 'ATOMIC_WRITE',
      change: { offset: 4 },
      syndrome: INVALID_REQUEST,
    },
    {
      what: 'ATOMIC_WRITE, wrong key',
      opcode: 'ATOMIC_WRITE',
      change: { keyXor: 0xffff00 },
      syndrome: REMOTE_ACCESS,
    },
    {
      what: 'ATOMIC_WRITE, no right on the region',
      opcode: 'ATOMIC_WRITE',
      region: { flushGlobal: true },
      syndrome: REMOTE_ACCESS,
    },
    {
      what: 'ATOMIC_WRITE, no right on the queue pair',
      opcode: 'ATOMIC_WRITE',
      queuePair: FLUSH_GLOBAL,
      syndrome: INVALID_REQUEST,
    },
    { what: 'FLUSH, wrong key', opcode: 'FLUSH', change: { keyXor: 0xffff00 }, syndrome: REMOTE_ACCESS },
    {
      what: 'FLUSH of no bytes, wrong key',
      opcode: 'FLUSH',
      change: { keyXor: 0xffff00, length: 0 },
      syndrome: REMOTE_ACCESS,
    },
    { what: 'FLUSH, outside', opcode: 'FLUSH', change: { length: 4097 }, syndrome: REMOTE_ACCESS },
    {
      what: 'FLUSH of no bytes, outside',
      opcode: 'FLUSH',
      change: { offset: 8192, length: 0 },
      syndrome: REMOTE_ACCESS,
    },
    {
      what: 'FLUSH of more than 2^31 bytes',
      opcode: 'FLUSH',
      change: { length: 2 ** 31 + 1 },
      syndrome: INVALID_REQUEST,
    },
    { what: 'FLUSH of a reserved level', opcode: 'FLUSH', change: { level: 2 }, syndrome: INVALID_REQUEST },
    {
      what: 'FLUSH, no right on the region',
      opcode: 'FLUSH',
      region: { remoteWrite: true },
      syndrome: REMOTE_ACCESS,
    },
    {
      what: 'FLUSH, no right on the queue pair',
      opcode: 'FLUSH',
      queuePair: REMOTE_WRITE | REMOTE_READ,
      syndrome: INVALID_REQUEST,
    },
    { what: 'FLUSH for persistence', opcode: 'FLUSH', change: { type: 2 }, syndrome: REMOTE_ACCESS },
  ] as const;
  test.each(NAKS)('$what: one NAK, and the status that belongs to it', async (row) => {
    const { opcode, syndrome } = row;
    const { change, region, queuePair } = row as { change?: Change; region?: AccessInit; queuePair?: number };
    await using link = await make(queuePair === undefined ? {} : { connect: { access: queuePair } });
    const at = await world(link, region);
    const before = at.ours.sha256;
    capture = await WireCapture.start(address);
    const status = syndrome === INVALID_REQUEST ? REM_INV_REQ_ERR : REM_ACCESS_ERR;
    expect((await one(at, opcode, change)).status).toBe(status);
    expect(naks(await capture.stop())).toEqual([{ source: address.hostIp4, syndrome }]);
    expect(at.ours.sha256).toBe(before);
    expect(at.ours.guardsIntact).toBe(true);
  });

  test.each(['FLUSH', 'ATOMIC_WRITE'] as const)(
    `${COUNT} times %s, sixteen outstanding`,
    { timeout: 300_000 },
    async (opcode) => {
      // Its timer may fire for nothing on a busy machine: it goes on then.
      await using link = await make({ theirs: { timeout: 18, retry_cnt: 7 } });
      const at = await world(link);
      const { wr_id: _, ...request } = keys(opcode, at);
      const done = await link.agent.call('repeat', { ...request, count: COUNT, depth: 16 });
      expect(done).toMatchObject({ completed: COUNT, status: 0 });
      if (opcode === 'ATOMIC_WRITE')
        expect([...at.ours.bytes.subarray(0, 8)]).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    },
  );
});

describe.each(['FLUSH', 'ATOMIC_WRITE'] as const)('%s is lost', (opcode) => {
  // rxe repeats without end: what is lost depends on no time.
  const options = { connect: { access: OURS_OPEN, timeout: 17 }, theirs: { retry_cnt: 7 } };
  const code = opcode === 'FLUSH' ? FLUSH : ATOMIC_WRITE;
  const requests = (packets: readonly WirePacket[]) => packets.filter((packet) => packet.opcode === code);
  const addressOf = ({ payload }: WirePacket) =>
    Buffer.from(payload).readBigUInt64BE(opcode === 'FLUSH' ? 16 : 12);
  const NOTHING = 'loss 100%';
  afterEach(() => guest.netem(''));

  /** rxe sends it while its network loses one way; both are whole again once it has. */
  async function fromRxe(link: LinkUp, sent: string, received: string) {
    const ours = await link.memory(64, { seed: 1, access: { remoteWrite: true, flushGlobal: true } });
    await guest.netem(sent, received);
    capture = await WireCapture.start(address);
    await link.agent.call('post_send', {
      qp: link.theirQp,
      opcode,
      remote_addr: ours.mr.addr,
      rkey: ours.mr.rkey,
      ...(opcode === 'FLUSH' ? { length: 64, type: 1, level: 0 } : { value: '0102030405060708' }),
    });
    await guest.endLosses();
    const [completion] = await link.agent.poll(1, 30_000);
    return { ours, completion, packets: await capture.stop() };
  }

  test('placementResendHasNoAddress: a retransmission of rxe has the address 0, which ours refuses', async () => {
    await using link = await make(options);
    const { completion, packets } = await fromRxe(link, NOTHING, '');
    expect(completion.status).toBe(REM_ACCESS_ERR);
    expect(requests(packets).map(addressOf)).toContain(0n);
    expect(naks(packets)).toEqual([{ source: address.hostIp4, syndrome: REMOTE_ACCESS }]);
    record(`${opcode}_request_lost`);
  });

  test('ours answers again what rxe sends again after a lost answer, whatever address that has', async () => {
    await using link = await make(options);
    const { ours, completion, packets } = await fromRxe(link, '', NOTHING);
    expect(completion.status).toBe(0);
    const [first, ...again] = requests(packets).map(addressOf);
    expect(first).toBe(ours.mr.addr);
    expect(new Set(again)).toEqual(new Set([0n]));
    expect(naks(packets)).toEqual([]);
    record(`${opcode}_answer_lost`);
    if (opcode === 'ATOMIC_WRITE') expect([...ours.bytes.subarray(0, 8)]).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });

  /** Ours sends it, and the guest's network loses one way until it has. */
  async function fromOurs(link: LinkUp, sent: string, received: string) {
    const ours = await link.memory(64, { seed: 1 });
    const theirs = await link.agent.mr({
      size: 64,
      access: 'LOCAL_WRITE,REMOTE_WRITE,FLUSH_GLOBAL',
      seed: 2,
    });
    const remote = { addr: theirs.address, rkey: theirs.rkey };
    await guest.netem(sent, received);
    link.qp.postSend(
      opcode === 'FLUSH'
        ? { wrId: 1, opcode, remote, flush: { length: 64 }, signaled: true }
        : { wrId: 1, opcode, remote, sgList: [{ mr: ours.mr, length: 8 }], signaled: true },
    );
    await guest.endLosses();
    return link.cq.next();
  }

  test('ours sends a lost request again', async () => {
    await using link = await make(options);
    expect((await fromOurs(link, '', NOTHING)).status).toBe('SUCCESS');
  });

  test('repeatedFlushIsNotAnswered: a lost answer to an ATOMIC_WRITE comes again, one to a FLUSH never', async () => {
    await using link = await make(options);
    const { status } = await fromOurs(link, NOTHING, '');
    expect(status).toBe(opcode === 'FLUSH' ? 'RETRY_EXC_ERR' : 'SUCCESS');
  });
});

describe('captures', () => {
  test('both sides write, flush and point', async () => {
    await using link = await make();
    const { agent, qp, theirQp } = link;
    const ours = await link.memory(4096, { seed: 1, access: { remoteWrite: true, flushGlobal: true } });
    const theirs = await agent.mr({ size: 4096, access: 'LOCAL_WRITE,REMOTE_WRITE,FLUSH_GLOBAL', seed: 2 });
    const [there, here] = [theirs, { address: ours.mr.addr, rkey: ours.mr.rkey }];
    capture = await WireCapture.start(address);
    for (let i = 0; i < 3; i++) {
      const remote = { addr: there.address, rkey: there.rkey };
      await qp.write({ mr: ours.mr, offset: 8, length: 256 }, { ...remote, addr: there.address + 8n });
      await qp.flush(remote, { length: 4096 });
      await qp.atomicWrite({ mr: ours.mr, length: 8 }, remote);
      const target = { qp: theirQp, remote_addr: here.address, rkey: here.rkey };
      await agent.call('post_send', { ...target, opcode: 'RDMA_WRITE', sge: `${theirs.mr}:8:256` });
      await agent.call('post_send', { ...target, opcode: 'FLUSH', length: 4096, type: 1, level: 0 });
      await agent.call('post_send', { ...target, opcode: 'ATOMIC_WRITE', value: '0102030405060708' });
      expect((await agent.poll(3)).map(({ status }) => status)).toEqual([0, 0, 0]);
    }
    const packets = await capture.stop();
    for (const opcode of [FLUSH, ATOMIC_WRITE]) {
      expect(packets.filter((packet) => packet.opcode === opcode).length).toBeGreaterThanOrEqual(6);
    }
    record('both');
  });
});

test('flushIsNotCounted: more of rxe’s FLUSHes are outstanding than max_rd_atomic', async () => {
  const count = 8;
  await using link = await make({
    connect: { access: OURS_OPEN, maxDestRdAtomic: 2 * count },
    theirs: { max_rd_atomic: 1, retry_cnt: 1 },
  });
  const ours = await link.memory(64, { seed: 1, access: { flushGlobal: true } });
  // It hears no answer: who counts has one FLUSH outstanding for as long as it goes on.
  onTestFinished(() => guest.netem(''));
  await guest.netem('', 'loss 100%');
  capture = await WireCapture.start(address);
  const range = { remote_addr: ours.mr.addr, rkey: ours.mr.rkey, length: 64, type: 1, level: 0 };
  for (let i = 0; i < count; i++)
    await link.agent.call('post_send', { qp: link.theirQp, wr_id: i, opcode: 'FLUSH', ...range });
  const [{ status }] = await link.agent.poll(1, 30_000);
  expect(status).toBe(RETRY_EXC_ERR);
  const flushes = (await capture.stop()).filter(({ opcode }) => opcode === FLUSH);
  expect(new Set(flushes.map(({ psn }) => psn)).size).toBe(count);
});

describe('flushIsCoveredTwice', () => {
  const remoteOf = ({ address, rkey }: TheirRegion) => ({ addr: address, rkey });

  test('rxe drops a FLUSH with a right ICRC', async () => {
    await using link = await make({
      open: { flushIcrc: 'both' },
      connect: { access: OURS_OPEN, retryCnt: 2 },
    });
    const theirs = await link.agent.mr({ size: 64, access: 'LOCAL_WRITE,REMOTE_WRITE,FLUSH_GLOBAL' });
    await expect(link.qp.flush(remoteOf(theirs), { length: 64 })).rejects.toThrow('RETRY_EXC_ERR');
  });

  test.each(['both', 'strict'] as const)('a FLUSH of rxe with flushIcrc: %s', async (flushIcrc) => {
    await using link = await make({
      open: { flushIcrc },
      connect: { access: OURS_OPEN },
      theirs: { retry_cnt: 2 },
    });
    const ours = await link.memory(64, { access: { flushGlobal: true } });
    capture = await WireCapture.start(address);
    const range = { remote_addr: ours.mr.addr, rkey: ours.mr.rkey, length: 64, type: 1, level: 0 };
    await link.agent.call('post_send', { qp: link.theirQp, opcode: 'FLUSH', ...range });
    const [{ status }] = await link.agent.poll(1, 30_000);
    const flushes = (await capture.stop()).filter(({ opcode }) => opcode === FLUSH);
    expect(new Set(flushes.map(({ icrcOk }) => icrcOk))).toEqual(new Set([false]));
    const { link: counts, icrcErrors } = await link.device.counters();
    const taken = flushIcrc === 'both' ? flushes.length : 0;
    expect(status).toBe(taken > 0 ? 0 : RETRY_EXC_ERR);
    expect(counts).toMatchObject({ flushTwice: taken });
    expect(icrcErrors).toBe(flushes.length - taken);
  });
});
