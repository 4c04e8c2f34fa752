/**
 * retry_cnt on the wire: a peer that never answered sees 1 + retry_cnt transmissions, whatever the engine and the link (IBTA vol 1 §9.7.6.1.3,
 * ibv_modify_qp(3)). The peer is a socket that counts datagrams.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { type OpenOptions, openDevice } from '@node-roce/verbs-api';
import { describe, expect, test } from 'vitest';

const port = 40_000 + (process.pid % 10_000);
const host = (n: number) => `127.${0x60 | ((process.pid >> 8) & 0x1f)}.${process.pid & 0xff}.${n}`;

async function countPackets(options: Partial<OpenOptions>, retryCnt: number, opcode: 'SEND' | 'RDMA_WRITE') {
  const peer = createSocket('udp4');
  let packets = 0;
  peer.on('message', () => packets++);
  peer.bind(port, host(2));
  await once(peer, 'listening');
  try {
    await using device = await openDevice({ address: host(1), port, ...options });
    const pd = await device.allocPd();
    const cq = await device.createCq(16);
    const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(64)));
    const qp = await pd.createQp({ sendCq: cq });
    const data = { qpNum: 77, psn: 0, gid: host(2) };
    // 4.096 µs · 2^12: the timer runs 34 ms.
    await qp.connect(data, { timeout: 12, retryCnt });
    const request = { sgList: [{ mr, length: 64 }], signaled: true };
    if (opcode === 'SEND') qp.postSend({ ...request, opcode });
    else qp.postSend({ ...request, opcode, remote: { addr: 0n, rkey: 1 } });
    expect(await cq.next()).toMatchObject({ status: 'RETRY_EXC_ERR' });
    expect(await device.counters()).toMatchObject({ probes: 0, sentPackets: 1 + retryCnt });
    // All that was sent arrives: it is loopback.
    await expect.poll(() => packets).toBe(1 + retryCnt);
  } finally {
    peer.close();
  }
  return packets;
}

describe.each([
  ['inline', { engine: 'inline', link: 'udp' }],
  ['worker', { engine: 'worker', link: 'udp' }],
  ['dgram', { engine: 'inline', link: 'dgram' }],
] as const)('%s', (_, options) => {
  test.each([0, 1, 2, 3, 4, 5, 6, 7])('retry_cnt %i', { timeout: 120_000 }, async (retryCnt) => {
    const opcode = retryCnt % 2 === 0 ? 'SEND' : 'RDMA_WRITE';
    expect(await countPackets(options, retryCnt, opcode)).toBe(1 + retryCnt);
  });
});
