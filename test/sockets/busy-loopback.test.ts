/**
 * Many busy queue pairs between two devices on real loopback, nothing lost on purpose: the ACK timer hardly ever runs out, because it
 * runs from when the link took a packet. `ROCE_BUSY_BYTES` is the length of each WRITE, 1 MiB in the long tier; without it nothing is
 * measured, because a busy machine keeps the ACKs waiting.
 */
import { type Device, openDevice, type QueuePair } from '@node-roce/verbs-api';
import { afterEach, expect, test } from 'vitest';

const QUEUE_PAIRS = 400;
const WRITES = 800;
const LENGTH = Number(process.env.ROCE_BUSY_BYTES ?? 0);
/** 4.096 µs · 2^12 = 17 ms; the timer runs out after twice that. */
const TIMEOUT = 12;
/** Timeouts that a busy machine may cause by not running us for so long. */
const MAX_TIMEOUTS = 4;

const port = 40_000 + (process.pid % 10_000);
const host = (n: number) => `127.${(process.pid >> 8) & 0x7f}.${process.pid & 0xff}.${n}`;
const open: Device[] = [];
afterEach(async () => {
  for (const device of open.splice(0)) await device.close();
});

async function openSide(n: number) {
  const device = await openDevice({ address: host(n), port, engine: 'inline' });
  open.push(device);
  const pd = await device.allocPd();
  const cq = await device.createCq(2 * WRITES);
  const memory = new Uint8Array(new SharedArrayBuffer(LENGTH));
  const mr = await pd.registerMr(memory, { access: { remoteWrite: true } });
  const qps: QueuePair[] = [];
  for (let i = 0; i < QUEUE_PAIRS; i++) qps.push(await pd.createQp({ sendCq: cq }));
  return { device, cq, mr, qps };
}

test.skipIf(LENGTH === 0)(
  `${QUEUE_PAIRS} queue pairs with timeout ${TIMEOUT} write ${WRITES} times with at most ${MAX_TIMEOUTS} timeouts`,
  {
    timeout: 300_000,
  },
  async () => {
    const a = await openSide(1);
    const b = await openSide(2);
    for (let i = 0; i < QUEUE_PAIRS; i++) {
      await a.qps[i].connect(b.qps[i].connectionData(), { timeout: TIMEOUT, retryCnt: 7, pathMtu: 4096 });
      await b.qps[i].connect(a.qps[i].connectionData(), { timeout: TIMEOUT, retryCnt: 7, pathMtu: 4096 });
    }
    const began = performance.now();
    const sgList = [{ mr: a.mr, length: LENGTH }];
    for (let i = 0; i < WRITES; i++) {
      const remote = b.mr.remote();
      a.qps[i % QUEUE_PAIRS].postSend({ wrId: i, opcode: 'RDMA_WRITE', sgList, remote, signaled: true });
    }
    const statuses = new Map<string, number>();
    for (let done = 0; done < WRITES; done++) {
      const { status } = await a.cq.next();
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
    const { timeouts, probes, retransmittedPackets } = await a.device.counters();
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    console.log(
      `result: ${WRITES} WRITEs of ${LENGTH} bytes by ${QUEUE_PAIRS} queue pairs in ${seconds} s: ${timeouts} timeouts, ${probes} probes, ${retransmittedPackets} retransmitted packets`,
    );
    expect([...statuses]).toEqual([['SUCCESS', WRITES]]);
    expect(timeouts).toBeLessThanOrEqual(MAX_TIMEOUTS);
  },
);
