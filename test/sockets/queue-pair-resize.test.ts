/** Queue pairs that are resized while they are used, over real sockets on loopback (ibv_modify_qp(3), IBV_QP_CAP). */
import { type OpenOptions, openDevice } from '@node-roce/verbs-api';
import { describe, expect, onTestFinished, test } from 'vitest';

// A port and addresses of our own: suites that run at the same time do not meet.
const port = 40_000 + (process.pid % 10_000);

async function openSide(address: string, engine: OpenOptions['engine']) {
  const device = await openDevice({ address, port, engine });
  onTestFinished(() => device.close());
  const pd = await device.allocPd();
  const cq = await device.createCq(512);
  const memory = new Uint8Array(new SharedArrayBuffer(4096));
  const mr = await pd.registerMr(memory);
  const qp = await pd.createQp({ sendCq: cq });
  return { cq, memory, mr, qp };
}

async function openPair(engine: OpenOptions['engine']) {
  const a = await openSide('127.0.0.71', engine);
  const b = await openSide('127.0.0.72', engine);
  await a.qp.connect(b.qp.connectionData());
  await b.qp.connect(a.qp.connectionData());
  return { a, b };
}

describe.each(['inline', 'worker'] as const)('resizing by modify, engine: %s', (engine) => {
  const testResizes = async (count: number) => {
    const { a, b } = await openPair(engine);
    let [posted, sent, received, resized] = [0, 0, 0, 0];
    /** Whether the queue had no room for it. */
    const isFull = (post: () => void) => {
      try {
        post();
        return false;
      } catch (error) {
        expect(error).toMatchObject({ code: 'ERR_ROCE_QUEUE_FULL' });
        return true;
      }
    };
    const receive = () =>
      b.qp.postRecv({ wrId: posted, sgList: [{ mr: b.mr, offset: (posted % 64) * 8, length: 8 }] });
    const send = () => {
      const data = new Uint8Array(8);
      new DataView(data.buffer).setUint32(0, sent);
      a.qp.postSend({ opcode: 'SEND', wrId: sent, inline: true, sgList: [data] });
    };
    const memory = new DataView(b.memory.buffer);
    let stop = false;
    const traffic = async () => {
      while (!stop || received < sent) {
        while (posted - received < 64 && !isFull(receive)) posted++;
        while (!stop && sent < posted && !isFull(send)) sent++;
        for (const wc of b.cq.poll(64)) {
          expect([wc.status, wc.wrId, wc.byteLen]).toEqual(['SUCCESS', BigInt(received), 8]);
          expect(memory.getUint32((received % 64) * 8)).toBe(received);
          received++;
        }
        await new Promise(setImmediate);
      }
    };
    const resizes = async () => {
      for (let i = 0; resized < count; i++) {
        const { qp } = i % 2 === 0 ? a : b;
        const name = i % 2 === 0 ? 'maxSendWr' : 'maxRecvWr';
        const size = 1 << ((i * 7) % 8);
        try {
          await qp.modify({ cap: { ...qp.cap, [name]: size } });
          expect(qp.cap[name]).toBe(size);
          resized++;
        } catch (error) {
          // More is posted than fits.
          expect(error).toMatchObject({ errno: 'EINVAL', attribute: `cap.${name}` });
          await new Promise(setImmediate);
        }
      }
      stop = true;
    };
    await Promise.all([traffic(), resizes()]);
    expect(received).toBe(sent);
    expect(sent).toBeGreaterThan(count);
    expect([a.qp.state, b.qp.state]).toEqual(['RTS', 'RTS']);
  };
  const title = '%d times up and down under traffic: nothing lost, nothing twice';
  // With an engine in a worker, a resize takes 55 ms of processor time of three threads, with runs of packets or without: more than one attempt is
  // refused for each that is not, and the program's thread looks some 2,000 times for what has arrived.
  test.each([20])(title, testResizes);
  test.each([200])(title, { tags: ['slow', 'gate'], timeout: 700_000 }, testResizes);
  test.each([1000])(title, { tags: ['slow'], timeout: 2_300_000 }, testResizes);
});
