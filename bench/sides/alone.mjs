// Measurements with both adapters in one process.
import { performance } from 'node:perf_hooks';
import { completionError, openDevice, WorkCompletion } from '@node-roce/verbs-api';

const CAP = { maxSendWr: 8, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };

async function open(address, port, cqe, bytes) {
  const device = await openDevice({ address, port });
  const pd = await device.allocPd();
  const cq = await device.createCq(cqe);
  const mr = await pd.registerMr(new Uint8Array(bytes), { access: { remoteWrite: true } });
  return { device, pd, cq, mr };
}

/** So many connected pairs between two adapters; on each a WRITE in turn, `rounds` times. */
export async function many({ queuePairs, size, rounds, port }) {
  const a = await open('127.0.0.1', port, 2 * queuePairs, size);
  const b = await open('127.0.0.2', port, 16, size * queuePairs);
  const pairs = [];
  const started = performance.now();
  for (let i = 0; i < queuePairs; i++) {
    const [qp, other] = [
      await a.pd.createQp({ sendCq: a.cq, cap: CAP }),
      await b.pd.createQp({ sendCq: b.cq, cap: CAP }),
    ];
    await qp.connect(other.connectionData(), { timeout: 18 });
    await other.connect(qp.connectionData(), { timeout: 18 });
    const request = {
      opcode: 'RDMA_WRITE',
      signaled: true,
      sgList: [{ mr: a.mr }],
      remote: b.mr.remote(i * size),
    };
    pairs.push({ qp, other, request });
  }
  const setUp = (performance.now() - started) / 1000;
  const completions = Array.from({ length: 64 }, () => new WorkCompletion());
  const start = performance.now();
  for (let round = 0; round < rounds; round++) {
    for (const { qp, request } of pairs) qp.postSend(request);
    for (let done = 0; done < queuePairs; ) {
      const n = a.cq.pollInto(completions);
      for (let i = 0; i < n; i++) if (!completions[i].ok) throw completionError(completions[i]);
      done += n;
      // The other adapter has to have its turn.
      if (n === 0) b.cq.pollInto(completions);
    }
  }
  const seconds = (performance.now() - start) / 1000;
  const { retransmittedPackets } = await a.device.counters();
  await a.device.close();
  await b.device.close();
  return {
    gbps: (8e-9 * size * queuePairs * rounds) / seconds,
    connectionsPerSecond: queuePairs / setUp,
    retransmittedPackets,
  };
}

/** A region, a completion queue and a queue pair made and destroyed again, one after the other. */
export async function churn({ count, port }) {
  const { device, pd, cq } = await open('127.0.0.1', port, 16, 4096);
  const bytes = new Uint8Array(4096);
  const cycle = async () => {
    const mr = await pd.registerMr(bytes);
    const own = await device.createCq(1);
    const qp = await pd.createQp({ sendCq: own, recvCq: cq, cap: CAP });
    await qp.close();
    await own.destroy();
    await mr.deregister();
  };
  const used = () => {
    globalThis.gc();
    const { heapUsed, arrayBuffers, external } = process.memoryUsage();
    return heapUsed + arrayBuffers + external;
  };
  for (let i = 0; i < count / 10; i++) await cycle();
  const before = used();
  const start = performance.now();
  for (let i = 0; i < count; i++) await cycle();
  const seconds = (performance.now() - start) / 1000;
  const grown = used() - before;
  await device.close();
  return { perSecond: count / seconds, grownBytes: grown };
}
