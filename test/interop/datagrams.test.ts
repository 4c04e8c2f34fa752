/** UD with the real rxe: datagrams both ways, the 40 bytes before them, Q_Keys, and datagrams that are silently dropped. */
import { setTimeout as sleep } from 'node:timers/promises';
import { GRH_BYTES } from '@node-roce/verbs-api';
import { afterEach, describe, expect, inject, test } from 'vitest';
import { type DatagramPairs, Ends, QKEY, sha256 } from './harness/connect.ts';
import { Guest } from './harness/guest.ts';
import { WireCapture, type WirePacket } from './harness/wire.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;
/** BTH, and the Q_Key and the sender's QPN in the DETH behind it. */
const BTH = 12;

let capture: WireCapture | undefined;
afterEach(({ task }) => {
  if (task.result?.state === 'fail') capture?.keep(task.name);
  capture?.discard();
  capture = undefined;
});

/** The 40 bytes that a receiver puts before the payload: an IPv6 header, or an IPv4 header after 20 zeros. */
function grhOf({ frame }: WirePacket): Buffer {
  const v6 = frame[14] >> 4 === 6;
  return v6 ? Buffer.from(frame.subarray(14, 54)) : Buffer.concat([Buffer.alloc(20), frame.subarray(14, 34)]);
}

const deth = ({ payload }: WirePacket) => {
  const view = new DataView(payload.buffer, payload.byteOffset + BTH, 8);
  return { qkey: view.getUint32(0), srcQpn: view.getUint32(4) & 0xff_ffff };
};

interface Datagram {
  size?: number;
  imm?: number;
  remoteQkey?: number;
  wrId?: number;
}

/** A guest and two queue pairs, memory of 8 KiB on both sides. */
async function setUp(version: 4 | 6 = 4, options = {}) {
  const ends = await Ends.open(guest, { version });
  const pairs = await ends.datagrams(options);
  const ours = await ends.memory(8192, { seed: 1 });
  const theirs = await ends.agent.mr({ size: 8192, access: 'LOCAL_WRITE', seed: 2 });
  return { ends, pairs, ours, theirs, [Symbol.asyncDispose]: () => ends[Symbol.asyncDispose]() };
}
type World = Awaited<ReturnType<typeof setUp>>;

/** We send from the start of our memory; resolves when it is complete here. */
async function weSend({ ends, pairs, ours }: World, datagram: Datagram = {}) {
  const { size = 16, imm, remoteQkey = QKEY, wrId = 1 } = datagram;
  pairs.qp.postSend({
    wrId,
    ...(imm === undefined ? { opcode: 'SEND' } : { opcode: 'SEND_WITH_IMM', immData: imm }),
    sgList: size === 0 ? [] : [{ mr: ours.mr, length: size }],
    ud: { ah: pairs.ah, remoteQpn: pairs.theirQpn, remoteQkey },
    signaled: true,
  });
  return ends.cq.next();
}

/** The guest sends from the start of its memory. */
async function theySend({ ends: { agent }, pairs, theirs }: World, datagram: Datagram = {}) {
  const { size = 16, imm, remoteQkey = QKEY, wrId = 1 } = datagram;
  await agent.call('post_send', {
    qp: pairs.theirQp,
    wr_id: wrId,
    opcode: imm === undefined ? 'SEND' : 'SEND_WITH_IMM',
    imm,
    sge: size === 0 ? undefined : `${theirs.mr}:0:${size}`,
    ah: pairs.theirAh,
    remote_qpn: pairs.qp.qpNum,
    remote_qkey: remoteQkey,
  });
  const [completion] = await agent.poll();
  return completion;
}

/** Receives go into the upper half of the memory, `room` bytes of it. */
const weReceive = ({ pairs, ours }: World, wrId: number, room = 4096 + GRH_BYTES - 4) =>
  pairs.qp.postRecv({ wrId, sgList: [{ mr: ours.mr, offset: 4056, length: room }] });
const theyReceive = ({ ends: { agent }, pairs, theirs }: World, wrId: number, room = 4096 + GRH_BYTES - 4) =>
  agent.call('post_recv', { qp: pairs.theirQp, wr_id: wrId, sge: `${theirs.mr}:4056:${room}` });

describe.each([4, 6] as const)('IPv%i', (version) => {
  test.each([{ size: 0 }, { size: 1, imm: 0xfeed_0001 }, { size: 1023 }, { size: 4052, imm: 7 }])(
    '$size bytes, immediate data $imm, both ways: payload, completion, and the IP header before it',
    async (datagram) => {
      await using world = await setUp(version);
      const { ends, pairs, ours, theirs } = world;
      const { agent, cq } = ends;
      const { size, imm } = datagram;
      capture = await WireCapture.start(address);

      await theyReceive(world, 5);
      const digest = sha256(ours.bytes.subarray(0, size));
      expect(await weSend(world, datagram)).toMatchObject({ wrId: 1n, status: 'SUCCESS', opcode: 'SEND' });
      expect(await agent.poll()).toMatchObject([
        {
          wrId: 5,
          status: 0,
          opcode: 'RECV',
          byteLen: GRH_BYTES + size,
          srcQp: pairs.qp.qpNum,
          flags: imm === undefined ? ['GRH'] : ['GRH', 'WITH_IMM'],
          ...(imm === undefined ? {} : { imm }),
        },
      ]);
      expect(await agent.sha256(theirs.mr, 4096, size)).toBe(digest);
      const theirGrh = await agent.call<{ hex: string }>('read', { mr: theirs.mr, offset: 4056, length: 40 });

      weReceive(world, 6);
      const theirDigest = await agent.sha256(theirs.mr, 0, size);
      expect(await theySend(world, datagram)).toMatchObject({ wrId: 1, status: 0 });
      const wc = await cq.next();
      expect(wc).toMatchObject({ wrId: 6n, status: 'SUCCESS', opcode: 'RECV', byteLen: GRH_BYTES + size });
      expect([wc.srcQp, wc.immData, wc.hasGrh]).toEqual([pairs.theirQpn, imm, true]);
      expect(sha256(ours.bytes.subarray(4096, 4096 + size))).toBe(theirDigest);
      expect(ours.guardsIntact).toBe(true);

      const packets = await capture.stop();
      expect(packets.map((p) => [p.source, p.icrcOk, p.opcode >> 5])).toEqual([
        [ends.host, true, 3],
        [ends.peer, true, 3],
      ]);
      expect(packets.map(deth)).toEqual([
        { qkey: QKEY, srcQpn: pairs.qp.qpNum },
        { qkey: QKEY, srcQpn: pairs.theirQpn },
      ]);
      expect(theirGrh.hex).toBe(grhOf(packets[0]).toString('hex'));
      expect(Buffer.from(ours.bytes.subarray(4056, 4096)).toString('hex')).toBe(
        grhOf(packets[1]).toString('hex'),
      );
    },
  );

  test('the traffic class of the address handle is on the wire and in the header before the payload', async () => {
    await using world = await setUp(version);
    const { ends, ours, theirs, pairs } = world;
    const classOf = (header: Uint8Array) =>
      version === 4 ? header[21] : ((header[0] << 4) | (header[1] >> 4)) & 0xff;
    await using ah = await ends.pd.createAh({ gid: ends.peer, trafficClass: 0x68 });
    const { ah: theirAh } = await ends.agent.call<{ ah: number }>('ah', {
      dgid: ends.dgid,
      traffic_class: 0xb8,
    });
    capture = await WireCapture.start(address);
    await theyReceive(world, 5);
    weReceive(world, 6);
    await weSend({ ...world, pairs: { ...pairs, ah } });
    await theySend({ ...world, pairs: { ...pairs, theirAh } });
    await ends.agent.poll();
    await ends.cq.next();
    expect((await capture.stop()).map((p) => classOf(grhOf(p)))).toEqual([0x68, 0xb8]);
    const { hex } = await ends.agent.call<{ hex: string }>('read', {
      mr: theirs.mr,
      offset: 4056,
      length: 40,
    });
    expect([classOf(Buffer.from(hex, 'hex')), classOf(ours.bytes.subarray(4056))]).toEqual([0x68, 0xb8]);
  });

  test('an answer finds its way by the completion alone', async () => {
    await using world = await setUp(version);
    const { ends, ours, pairs } = world;
    weReceive(world, 6);
    await theySend(world);
    const wc = await ends.cq.next();
    await using back = await ends.pd.createAhFromWc(wc, ours.bytes.subarray(4056, 4096));
    await theyReceive(world, 5);
    pairs.qp.postSend({
      opcode: 'SEND',
      sgList: [{ mr: ours.mr, length: 9 }],
      ud: { ah: back, remoteQpn: wc.srcQp, remoteQkey: QKEY },
    });
    expect(await ends.agent.poll()).toMatchObject([{ wrId: 5, status: 0, byteLen: GRH_BYTES + 9 }]);
  });
});

describe('Q_Keys', () => {
  test('a wrong one: dropped silently, the receive waits for the next', async () => {
    await using world = await setUp();
    const { ends, pairs } = world;
    capture = await WireCapture.start(address);
    await theyReceive(world, 5);
    expect(await weSend(world, { remoteQkey: QKEY + 1, size: 3 })).toMatchObject({ status: 'SUCCESS' });
    expect(await weSend(world, { size: 4, wrId: 2 })).toMatchObject({ wrId: 2n, status: 'SUCCESS' });
    expect(await ends.agent.poll()).toMatchObject([{ wrId: 5, status: 0, byteLen: GRH_BYTES + 4 }]);

    weReceive(world, 6);
    expect(await theySend(world, { remoteQkey: QKEY + 1, size: 3 })).toMatchObject({ status: 0 });
    expect(await theySend(world, { size: 4, wrId: 2 })).toMatchObject({ wrId: 2, status: 0 });
    expect(await ends.cq.next()).toMatchObject({ wrId: 6n, status: 'SUCCESS', byteLen: GRH_BYTES + 4 });
    expect((await pairs.qp.counters()).qkeyViolations).toBe(1);
    const packets = await capture.stop();
    expect(packets.map((p) => [p.source, deth(p).qkey])).toEqual([
      [ends.host, QKEY + 1],
      [ends.host, QKEY],
      [ends.peer, QKEY + 1],
      [ends.peer, QKEY],
    ]);
  });

  test('with the top bit set, ours is the queue pair’s own', async () => {
    // For the Q_Key that rxe sends, see quirks.test.ts.
    await using world = await setUp(4, { qkey: [0x0102_0304, 0x0a0b_0c0d] });
    const { ends, pairs } = world;
    capture = await WireCapture.start(address);
    await theyReceive(world, 5);
    await weSend(world, { remoteQkey: 0x8000_0000 });
    await pairs.qp.modify({ qkey: 0x0a0b_0c0d });
    await weSend(world, { remoteQkey: 0xffff_ffff, size: 7 });
    expect(await ends.agent.poll()).toMatchObject([{ wrId: 5, status: 0, byteLen: GRH_BYTES + 7 }]);
    expect((await capture.stop()).map((p) => deth(p).qkey)).toEqual([0x0102_0304, 0x0a0b_0c0d]);
  });
});

describe('dropped silently, and the queue pair lives', () => {
  test('no receive', async () => {
    await using world = await setUp();
    const { ends, pairs } = world;
    expect(await weSend(world, { size: 3 })).toMatchObject({ status: 'SUCCESS' });
    await sleep(200);
    await theyReceive(world, 5);
    await weSend(world, { size: 4 });
    expect(await ends.agent.poll()).toMatchObject([{ wrId: 5, status: 0, byteLen: GRH_BYTES + 4 }]);

    await theySend(world, { size: 3 });
    for (let i = 0; i < 400 && (await pairs.qp.counters()).outOfBuffer === 0; i++) await sleep(5);
    expect((await pairs.qp.counters()).outOfBuffer).toBe(1);
    weReceive(world, 6);
    await theySend(world, { size: 4 });
    expect(await ends.cq.next()).toMatchObject({ wrId: 6n, status: 'SUCCESS', byteLen: GRH_BYTES + 4 });
  });

  test('rxe to us: a receive without room for header and payload waits for the next', async () => {
    // The other way, rxe ends the queue pair (quirks.test.ts).
    await using world = await setUp();
    weReceive(world, 6, GRH_BYTES + 15);
    await theySend(world, { size: 16 });
    await theySend(world, { size: 15 });
    expect(await world.ends.cq.next()).toMatchObject({
      wrId: 6n,
      status: 'SUCCESS',
      byteLen: GRH_BYTES + 15,
    });
    expect(world.ours.guardsIntact).toBe(true);
  });

  test('another queue pair number', async () => {
    await using world = await setUp();
    const wrong = (pairs: DatagramPairs): DatagramPairs => ({ ...pairs, theirQpn: pairs.theirQpn ^ 0x1000 });
    await theyReceive(world, 5);
    expect(await weSend({ ...world, pairs: wrong(world.pairs) })).toMatchObject({ status: 'SUCCESS' });
    await weSend(world, { size: 4 });
    expect(await world.ends.agent.poll()).toMatchObject([{ wrId: 5, status: 0, byteLen: GRH_BYTES + 4 }]);
  });
});

test('more than a packet holds: LOC_LEN_ERR here, and after SQE the queue goes on', async () => {
  await using world = await setUp();
  const { ends, pairs } = world;
  expect(await weSend(world, { size: 4097 })).toMatchObject({ wrId: 1n, status: 'LOC_LEN_ERR' });
  expect(pairs.qp.state).toBe('SQE');
  // Receiving goes on.
  weReceive(world, 6);
  await theySend(world, { size: 4 });
  expect(await ends.cq.next()).toMatchObject({ wrId: 6n, status: 'SUCCESS' });
  await pairs.qp.modify({ qpState: 'RTS', curQpState: 'SQE' });
  await theyReceive(world, 5);
  expect(await weSend(world, { wrId: 2 })).toMatchObject({ wrId: 2n, status: 'SUCCESS' });
  expect(await ends.agent.poll()).toMatchObject([{ wrId: 5, status: 0 }]);
});
