/**
 * Two devices of one thread, which poll: round trips of 64 B, or a signaled WRITE on each of 200 queue pairs. Prints the bytes that V8 allocates for
 * each round trip or message, once the code is compiled: `node side.mjs DIST PORT KIND`.
 */
import { Session } from 'node:inspector/promises';

const [dist, port, kind] = process.argv.slice(2);
const { openDevice, WorkCompletion } = await import(dist);
const LENGTH = 64;
const WARM_UP = 60_000;
const COUNTED = 10_000;
const QUEUE_PAIRS = kind === 'many' ? 200 : 1;

async function openSide(address) {
  const device = await openDevice({ address, port: Number(port) });
  const pd = await device.allocPd();
  const sendCq = await device.createCq(1024);
  const recvCq = await device.createCq(1024);
  const access = { localWrite: true, remoteWrite: true };
  const mr = await pd.registerMr(new Uint8Array(2 * LENGTH), { access });
  const qps = [];
  for (let i = 0; i < QUEUE_PAIRS; i++) {
    qps.push(await pd.createQp({ sendCq, recvCq, cap: { maxSendWr: 128, maxRecvWr: 16 } }));
  }
  const sgList = [{ mr, offset: 0, length: LENGTH }];
  const receive = { sgList: [{ mr, offset: LENGTH, length: LENGTH }] };
  const plain = { opcode: 'SEND', signaled: false, sgList };
  return { sendCq, recvCq, mr, qps, receive, plain, last: { ...plain, signaled: true }, sgList, sent: 0 };
}

const [a, b] = [await openSide('127.0.0.1'), await openSide('127.0.0.2')];
for (let i = 0; i < QUEUE_PAIRS; i++) {
  await a.qps[i].connect(b.qps[i].connectionData());
  await b.qps[i].connect(a.qps[i].connectionData());
  for (let each = 0; each < 4; each++) {
    a.qps[i].postRecv(a.receive);
    b.qps[i].postRecv(b.receive);
  }
}
const completions = Array.from({ length: 128 }, () => new WorkCompletion());

function take(cq) {
  const count = cq.pollInto(completions);
  for (let i = 0; i < count; i++) if (!completions[i].ok) throw new Error(completions[i].status);
  return count;
}

function pass(from, to) {
  from.qps[0].postSend(from.sent++ % 64 === 63 ? from.last : from.plain);
  take(from.sendCq);
  from.qps[0].postRecv(from.receive);
  while (take(to.recvCq) === 0) take(from.sendCq);
}

function roundTrips(count) {
  for (let i = 0; i < count; i++) {
    pass(a, b);
    pass(b, a);
  }
}

const write = { opcode: 'RDMA_WRITE', signaled: true, sgList: a.sgList, remote: b.mr.remote() };

function writes(count) {
  for (let begun = 0; begun < count; begun += QUEUE_PAIRS) {
    for (let i = 0; i < QUEUE_PAIRS; i++) a.qps[i].postSend(write);
    for (let done = 0; done < QUEUE_PAIRS; take(b.recvCq)) done += take(a.sendCq);
  }
}

const run = kind === 'many' ? writes : roundTrips;
run(WARM_UP);
const session = new Session();
session.connect();
await session.post('HeapProfiler.startSampling', {
  samplingInterval: 256,
  includeObjectsCollectedByMajorGC: true,
  includeObjectsCollectedByMinorGC: true,
});
run(COUNTED);
const { profile } = await session.post('HeapProfiler.stopSampling');
const sum = ({ selfSize, children }) => children.reduce((bytes, child) => bytes + sum(child), selfSize);
console.log(sum(profile.head) / COUNTED);
process.exit();
