/**
 * One of two peers: the sender WRITEs 64 KiB again and again for some seconds; the receiver's link marks every ECN-capable packet that comes.
 * The one argument is an object of JSON: address, engine, isSender, seconds, congestion, trafficClass.
 *
 * Lines of JSON out: `data` (for the other peer), `done` (of the sender), `result`. Lines in: the other peer's data, `begin`, `end`.
 */
import { createInterface } from 'node:readline';
import { openDevice } from '@node-roce/verbs-api';

const { address, engine, isSender, seconds, congestion, trafficClass } = JSON.parse(process.argv[2]);
const MESSAGE = 64 * 1024;
const DEPTH = 8;
/** A rate that nothing here reaches, and marks from an empty queue on. */
const MARKS = { direction: 'inbound', rate: 1e11, markAt: 0 };

const say = (type, rest) => console.log(JSON.stringify({ type, ...rest }));
const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const line = async () => JSON.parse((await input.next()).value);

const faults = isSender ? undefined : MARKS;
const device = await openDevice({ address, engine, link: 'udp', congestion, faults });
const pd = await device.allocPd();
const cq = await device.createCq(64);
const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(MESSAGE)), {
  access: { remoteWrite: true },
});
const qp = await pd.createQp({ sendCq: cq });
await qp.toInit();
const { addr, rkey } = mr.remote();
say('data', { data: { ...qp.connectionData(), addr: `${addr}`, rkey } });
const peer = await line();
await qp.connect(peer, { pathMtu: 1024, trafficClass });
await line();

let bytes = 0;
if (isSender) {
  const remote = { addr: BigInt(peer.addr), rkey: peer.rkey };
  const post = () =>
    qp.postSend({
      opcode: 'RDMA_WRITE',
      signaled: true,
      sgList: [{ mr, offset: 0, length: MESSAGE }],
      remote,
    });
  const end = performance.now() + seconds * 1000;
  let out = DEPTH;
  for (let i = 0; i < DEPTH; i++) post();
  while (out > 0) {
    const { status } = await cq.next();
    if (status !== 'SUCCESS') throw new Error(status);
    const isOver = performance.now() >= end;
    if (!isOver) {
      bytes += MESSAGE;
      post();
    } else out--;
  }
  say('done', {});
}
await line();
const { mlx5, retransmittedPackets, sentPackets } = await device.counters();
const own = await qp.counters();
say('result', { mbits: (bytes * 8) / seconds / 1e6, mlx5, own: own.mlx5, retransmittedPackets, sentPackets });
await device.close();
process.exit(0);
