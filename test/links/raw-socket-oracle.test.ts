/**
 * Packets with the IP headers that UDP sockets hide, sent and received by `raw-socket` from npm: the ICRCs that the native
 * link predicts are right over the headers that the kernel really wrote, and it takes packets with any Identification.
 * Needs root; with ROCE_ROOT_TESTS set, as in .ci/run, it fails without.
 */
// @module-tag slow
// @module-tag gate
import { openDevice } from '@node-roce/verbs-api';
import { buildPacket, FrameType, opcodeInfo, type Packet, parseFrame } from '@node-roce/wire';
import { expect, onTestFinished, test } from 'vitest';
import { openRawSocket } from './raw-socket/oracle.ts';

const able = process.getuid?.() === 0;
if (!able && process.env.ROCE_ROOT_TESTS) throw new Error('a raw socket needs root');

const net = `127.${0x50 | ((process.pid >> 8) & 0xf)}.${process.pid & 0xff}`;
const [OURS, PEER] = [`${net}.1`, `${net}.2`];
const PEER_QPN = 0x1234;

/** A device with a connected queue pair, and a raw socket that collects the device's packets to the peer. */
async function open() {
  const seen: Packet[] = [];
  const socket = openRawSocket((bytes) => {
    const isOurs = bytes.subarray(12, 16).join('.') === OURS && bytes.subarray(16, 20).join('.') === PEER;
    if (!isOurs) return;
    // The raw socket gives the IP header as it was received.
    const result = parseFrame(bytes, FrameType.RAW);
    if (!result.ok) throw new Error(`${result.reason}: ${result.detail}`);
    seen.push(result.packet);
  });
  onTestFinished(() => socket.close());
  const device = await openDevice({ address: OURS, link: 'udp' });
  onTestFinished(() => device.close());
  const pd = await device.allocPd();
  const cq = await device.createCq(256);
  const mr = await pd.registerMr(new Uint8Array(65_536).map((_, i) => i * 7));
  const qp = await pd.createQp({ sendCq: cq, cap: { maxSendWr: 64, maxRecvWr: 64 } });
  await qp.connect({ qpNum: PEER_QPN, psn: 1000, gid: PEER, mtu: 4096 }, { timeout: 0 });
  return { seen, socket, device, cq, mr, qp };
}

test.skipIf(!able)(
  'it receives: the ICRC of each packet is right over the IP header as it came',
  async () => {
    const { seen, socket, mr, qp } = await open();
    // One by one: together they leave as a super-packet, which loopback does not cut.
    const lengths = [0, 1, 2, 3, 4, 100, 100, 100, 100, 1023, 4095, 4096];
    const remote = { addr: 0n, rkey: 1 };
    for (const [i, length] of lengths.entries()) {
      qp.postSend({ opcode: 'RDMA_WRITE', sgList: [{ mr, offset: i, length }], remote });
      await expect.poll(() => seen.length).toBe(i + 1);
    }
    expect(seen.map(({ icrcStatus }) => icrcStatus)).toEqual(lengths.map(() => 'ok'));
    expect(seen.map(({ bth }) => opcodeInfo(bth.opcode)!.key)).toEqual(
      lengths.map(() => 'RC_RDMA_WRITE_ONLY'),
    );
    expect(seen.map(({ payload }) => payload.length)).toEqual(lengths);
    for (const [i, { payload }] of seen.entries()) {
      expect(payload).toEqual(Uint8Array.from({ length: lengths[i] }, (_, k) => (k + i) * 7));
    }
    expect(socket.errors).toEqual([]);
  },
);

test.skipIf(!able)(
  'it sends: messages with Identifications of its own arrive, and are acknowledged',
  async () => {
    const { seen, socket, device, cq, mr, qp } = await open();
    const ids = [1, 2, 3, 4];
    for (const [i] of ids.entries())
      qp.postRecv({ wrId: i, sgList: [{ mr, offset: i * 4096, length: 4096 }] });
    const data = (i: number) => Uint8Array.from({ length: 100 + i }, (_, k) => k ^ i);
    for (const [i, id] of ids.entries()) {
      const packet = buildPacket({
        ip: { source: PEER, destination: OURS, id },
        bth: { opcode: 'RC_SEND_ONLY', destQp: qp.qpNum, psn: 1000 + i, ackReq: true },
        payload: data(i),
      });
      await socket.send(packet, OURS);
      expect(await cq.next()).toMatchObject({
        status: 'SUCCESS',
        byteLen: 100 + i,
      });
      expect(mr.bytes(i * 4096, 100 + i)).toEqual(data(i));
    }
    await expect.poll(() => seen.length).toBe(4);
    expect(seen.map(({ bth, icrcStatus }) => [bth.psn, icrcStatus])).toEqual(
      [0, 1, 2, 3].map((i) => [1000 + i, 'ok']),
    );
    // One that was changed on the way is counted and not taken.
    const bad = buildPacket({
      ip: { source: PEER, destination: OURS, id: 5 },
      bth: { opcode: 'RC_SEND_ONLY', destQp: qp.qpNum, psn: 1004, ackReq: true },
      payload: data(4),
    });
    bad[60] ^= 1;
    await socket.send(bad, OURS);
    await expect.poll(async () => (await device.counters()).icrcErrors).toBe(1);
    expect(cq.poll()).toEqual([]);
  },
);
