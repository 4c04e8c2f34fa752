/**
 * retry_cnt on the wire: a peer that never answered sees 1 + retry_cnt transmissions, whatever the engine and the link (IBTA vol 1 §9.7.6.1.3,
 * ibv_modify_qp(3)); without probes, so does a peer that answered before. The peer is a socket that counts datagrams.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { type OpenOptions, openDevice } from '@node-roce/verbs-api';
import { describe, expect, test } from 'vitest';

const port = 40_000 + (process.pid % 10_000);
const host = (n: number) => `127.${0x60 | ((process.pid >> 8) & 0x1f)}.${process.pid & 0xff}.${n}`;

async function countingPeer() {
  const socket = createSocket('udp4');
  const peer = { packets: 0, close: () => socket.close() };
  socket.on('message', () => peer.packets++);
  socket.bind(port, host(2));
  await once(socket, 'listening');
  return peer;
}

async function countPackets(options: Partial<OpenOptions>, retryCnt: number, opcode: 'SEND' | 'RDMA_WRITE') {
  const peer = await countingPeer();
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
    await expect.poll(() => peer.packets).toBe(1 + retryCnt);
  } finally {
    peer.close();
  }
  return peer.packets;
}

/** Ten requests are answered; then the peer's device ends, and a socket that counts takes its place. */
async function countAfterTraffic(options: Partial<OpenOptions>, retryCnt: number) {
  await using device = await openDevice({ address: host(1), port, recovery: { probes: false }, ...options });
  const far = await openDevice({ address: host(2), port, ...options });
  const sides = [];
  for (const each of [device, far]) {
    const pd = await each.allocPd();
    const cq = await each.createCq(16);
    const access = { remoteWrite: true };
    const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(64)), { access });
    sides.push({ mr, cq, qp: await pd.createQp({ sendCq: cq }) });
  }
  const [{ qp, cq, mr }, there] = sides as [(typeof sides)[0], (typeof sides)[0]];
  // 1.1 s: a busy machine answers in time.
  await qp.connect(there.qp.connectionData(), { timeout: 18, retryCnt: 7 });
  await there.qp.connect(qp.connectionData());
  const request = {
    opcode: 'RDMA_WRITE',
    sgList: [{ mr }],
    remote: there.mr.remote(),
    signaled: true,
  } as const;
  for (let i = 0; i < 10; i++) {
    qp.postSend(request);
    expect(await cq.next()).toMatchObject({ status: 'SUCCESS' });
  }
  await far.close();
  const peer = await countingPeer();
  try {
    await qp.modify({ qpState: 'SQD' });
    await qp.modify({ qpState: 'SQD', timeout: 12, retryCnt });
    await qp.modify({ qpState: 'RTS' });
    const before = (await device.counters()).sentPackets;
    qp.postSend(request);
    expect(await cq.next()).toMatchObject({ status: 'RETRY_EXC_ERR' });
    const { probes, sentPackets } = await device.counters();
    expect({ probes, sent: sentPackets - before }).toEqual({ probes: 0, sent: 1 + retryCnt });
    await expect.poll(() => peer.packets).toBe(1 + retryCnt);
  } finally {
    peer.close();
  }
}

const ALL = [0, 1, 2, 3, 4, 5, 6, 7];
/** Those that `npm test` plays of the other engine and link; the gate plays all. */
const ENDS = [0, 7];

describe.each([
  ['inline', { engine: 'inline', link: 'udp' }, ALL],
  ['worker', { engine: 'worker', link: 'udp' }, ENDS],
  ['dgram', { engine: 'inline', link: 'dgram' }, ENDS],
] as const)('%s', (_, options, quick) => {
  test.each(ALL)('retry_cnt %i', { timeout: 120_000 }, async (retryCnt) => {
    const opcode = retryCnt % 2 === 0 ? 'SEND' : 'RDMA_WRITE';
    for (const recovery of [{}, { probes: false }])
      expect(await countPackets({ ...options, recovery }, retryCnt, opcode)).toBe(1 + retryCnt);
  });

  const afterTraffic = 'retry_cnt %i without probes, by a peer that answered before';
  test.each(quick)(afterTraffic, { timeout: 120_000 }, (retryCnt) => countAfterTraffic(options, retryCnt));

  test.each(ALL.filter((retryCnt) => !quick.includes(retryCnt)))(
    afterTraffic,
    { timeout: 120_000, tags: ['slow', 'gate'] },
    (retryCnt) => countAfterTraffic(options, retryCnt),
  );
});
