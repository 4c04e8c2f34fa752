/** Two devices on loopback, which loses nothing: no packet twice but for the odd probe when this machine is busy. */
import {
  type CompletionQueue,
  type Device,
  type OpenOptions,
  openDevice,
  type SendWr,
} from '@node-roce/verbs-api';
import { afterEach, describe, expect, test } from 'vitest';

const port = 40_000 + (process.pid % 10_000);
const host = (n: number) => `127.${0x50 | ((process.pid >> 8) & 0x0f)}.${process.pid & 0xff}.${n}`;
const MESSAGES = 10_000;
const DEPTH = 64;
const MORE = { inline: {}, worker: { tags: ['slow', 'gate'] } };

const open = new Set<Device>();
afterEach(async () => {
  for (const device of open) await device.close();
  open.clear();
});

async function openSide(address: string, options: Partial<OpenOptions>) {
  const device = await openDevice({ address, port, ...options });
  open.add(device);
  const pd = await device.allocPd();
  const cq = await device.createCq(4 * DEPTH);
  const access = { remoteWrite: true, remoteRead: true, remoteAtomic: true };
  const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(1 << 17)), { access });
  const qp = await pd.createQp({ sendCq: cq, cap: { maxSendWr: 2 * DEPTH, maxRecvWr: 2 * DEPTH } });
  return { device, cq, mr, qp };
}

async function openPair(options: Partial<OpenOptions>) {
  const [a, b] = [await openSide(host(1), options), await openSide(host(2), options)];
  await a.qp.connect(b.qp.connectionData());
  await b.qp.connect(a.qp.connectionData());
  return { a, b };
}

async function succeed(cq: CompletionQueue): Promise<void> {
  const { status } = await cq.next();
  expect(status).toBe('SUCCESS');
}

describe.each(['inline', 'worker'] as const)('engine: %s', (engine) => {
  // Once: the first ACK came later than 0.9 ms, as in most processes, and a probe had gone by then.
  test('a first SEND of 100,000 bytes', { timeout: 120_000 }, async () => {
    const { a, b } = await openPair({ engine });
    b.qp.postRecv({ sgList: [{ mr: b.mr, length: 100_000 }] });
    a.qp.postSend({ opcode: 'SEND', sgList: [{ mr: a.mr, length: 100_000 }], signaled: true });
    await succeed(a.cq);
    await succeed(b.cq);
    const { retransmittedPackets, timeouts } = await a.device.counters();
    // One probe, if the machine took the processor away from it in the middle; and all of it, if that was for longer than the ACK timer runs.
    expect(retransmittedPackets).toBeLessThanOrEqual(1 + 100 * timeouts);
  });

  test.each(['SEND', 'RDMA_WRITE', 'RDMA_READ', 'ATOMIC_FETCH_AND_ADD'] as const)(
    '10,000 of %s: at most one packet in 1,000 twice',
    { timeout: 300_000, ...MORE[engine] },
    async (opcode) => {
      const { a, b } = await openPair({ engine });
      const sgList = [{ mr: a.mr, length: 8 }];
      const remote = b.mr.remote();
      const asked = { sgList, signaled: true };
      let request: SendWr;
      if (opcode === 'SEND') request = { ...asked, opcode };
      else if (opcode === 'ATOMIC_FETCH_AND_ADD') request = { ...asked, opcode, remote, compareAdd: 1n };
      else request = { ...asked, opcode, remote };
      const receive = () => b.qp.postRecv({ sgList: [{ mr: b.mr, length: 8 }] });
      for (let i = 0; i < DEPTH; i++) {
        if (opcode === 'SEND') receive();
        a.qp.postSend(request);
      }
      for (let done = 0; done < MESSAGES; done++) {
        await succeed(a.cq);
        if (opcode === 'SEND') {
          await succeed(b.cq);
          if (done < MESSAGES - DEPTH) receive();
        }
        if (done < MESSAGES - DEPTH) a.qp.postSend(request);
      }
      const { timeouts, sentPackets } = await a.device.counters();
      const { duplicateRequest } = await b.device.counters();
      // A timeout shows that the machine stood still.
      expect(duplicateRequest).toBeLessThanOrEqual(sentPackets / 1000 + DEPTH * timeouts);
    },
  );
});
