/**
 * Requests to a peer that never answers. Argument: JSON with `device` (openDevice's options), `to` (the peer's address) and `retryCnts`: one
 * queue pair each, to the QPN `FIRST_QPN` and those after it. A line of JSON out: `ended` with the link, the statuses, and packets sent.
 */
import { openDevice } from '@node-roce/verbs-api';

const FIRST_QPN = 100;
const { device: options, to, retryCnts } = JSON.parse(process.argv[2]);
const device = await openDevice(options);
const pd = await device.allocPd();
const cq = await device.createCq();
const mr = await pd.registerMr(new Uint8Array(64));
const statuses = [];
for (const [i, retryCnt] of retryCnts.entries()) {
  const qp = await pd.createQp({ sendCq: cq });
  await qp.connect({ qpNum: FIRST_QPN + i, psn: 0, gid: to }, { timeout: 12, retryCnt });
  const request = { signaled: true, sgList: [{ mr, length: 64 }] };
  if (i % 2 === 0) qp.postSend({ ...request, opcode: 'SEND' });
  else qp.postSend({ ...request, opcode: 'RDMA_WRITE', remote: { addr: 0n, rkey: 1 } });
  statuses.push((await cq.next()).status);
}
const { sentPackets, probes } = await device.counters();
const { link } = device.query();
console.log(JSON.stringify({ type: 'ended', link, statuses, sentPackets, probes }));
await device.close();
