// The peer of test/sockets/worker-blocked.test.ts, a process of its own: WRITEs to a program that is blocked. Arguments: address, port.
import { once } from 'node:events';
import { openDevice } from '@node-roce/verbs-api';

const MIB = 1024 * 1024;
const DEPTH = 16;

const [address, port] = process.argv.slice(2);
const device = await openDevice({ address, port: Number(port) });
const pd = await device.allocPd();
const cq = await device.createCq(DEPTH);
const memory = new Uint8Array(DEPTH * MIB);
const words = new Uint32Array(memory.buffer);
const mr = await pd.registerMr(memory);
const qp = await pd.createQp({ sendCq: cq, cap: { maxSendWr: DEPTH } });

process.send(qp.connectionData());
const [{ data, remote, messages }] = await once(process, 'message');
await qp.connect(data, { pathMtu: 4096, timeout: 14, retryCnt: 3 });

const failed = [];
for (let posted = 0, done = 0; done < messages && failed.length === 0; ) {
  while (posted < messages && posted - done < DEPTH) {
    const offset = (posted++ % DEPTH) * MIB;
    // The last word of a message is its number, for who looks at memory.
    words[(offset + MIB) / 4 - 1] = posted;
    qp.postSend({ opcode: 'RDMA_WRITE', signaled: true, sgList: [{ mr, offset, length: MIB }], remote });
  }
  const { status } = await cq.next();
  done++;
  if (status !== 'SUCCESS') failed.push(status);
}
const { timeouts } = await qp.counters();
process.send({ failed, timeouts });
await device.close();
process.disconnect();
