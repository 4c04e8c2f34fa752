/** Ten thousand connections between two devices on real loopback, each with a WRITE of its own. */
// @module-tag slow
import { type Device, openDevice, type QueuePair, WorkCompletion } from '@node-roce/verbs-api';
import { afterEach, expect, test } from 'vitest';

const CONNECTIONS = 10_000;
const LENGTH = 8;

const port = 40_000 + (process.pid % 10_000);
const host = (n: number) => `127.${(process.pid >> 8) & 0x7f}.${process.pid & 0xff}.${n}`;
const open: Device[] = [];
afterEach(async () => {
  for (const device of open.splice(0)) await device.close();
});

async function openSide(n: number) {
  const device = await openDevice({ address: host(n), port });
  open.push(device);
  const pd = await device.allocPd();
  const cq = await device.createCq(2 * CONNECTIONS);
  const memory = new Uint8Array(CONNECTIONS * LENGTH);
  const mr = await pd.registerMr(memory, { access: { remoteWrite: true } });
  const newQp = () => pd.createQp({ sendCq: cq, cap: { maxSendWr: 16, maxRecvWr: 16 } });
  return { cq, mr, memory, newQp };
}

test(`${CONNECTIONS} queue pairs between two adapters write, each to its own place`, async () => {
  const [a, b] = [await openSide(1), await openSide(2)];
  const qps: QueuePair[] = [];
  for (let i = 0; i < CONNECTIONS; i++) {
    const [qp, other] = [await a.newQp(), await b.newQp()];
    await qp.connect(other.connectionData(), { timeout: 20 });
    await other.connect(qp.connectionData(), { timeout: 20 });
    qps.push(qp);
  }
  const words = new Uint32Array(a.memory.buffer);
  for (let i = 0; i < words.length; i++) words[i] = Math.imul(i + 1, 0x9e37_79b1);
  for (const [i, qp] of qps.entries()) {
    qp.postSend({
      opcode: 'RDMA_WRITE',
      wrId: i,
      signaled: true,
      sgList: [{ mr: a.mr, offset: i * LENGTH, length: LENGTH }],
      remote: b.mr.remote(i * LENGTH),
    });
  }
  const completions = Array.from({ length: 64 }, () => new WorkCompletion());
  const failed: string[] = [];
  for (let done = 0; done < CONNECTIONS; ) {
    const count = a.cq.pollInto(completions);
    for (const { ok, status } of completions.slice(0, count)) if (!ok) failed.push(status);
    done += count;
    // The other adapter has its turn.
    b.cq.pollInto(completions);
  }
  expect(failed).toEqual([]);
  expect(Buffer.compare(a.memory, b.memory)).toBe(0);
});
