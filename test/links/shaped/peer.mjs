/**
 * One of two equal peers over a slow cable: 64 requests are out at all times, SEND, WRITE and READ in turn, of 1 byte to
 * 32 KiB, and every byte that comes is compared. Arguments: address, engine, seconds.
 *
 * Lines of JSON out: `data` (for the other peer), `drained` (nothing of its own is out any more), `result`. Lines in: the
 * other peer's data, then `measure`, which starts the measurement of an idle adapter, once both are drained.
 */
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { openDevice } from '@node-roce/verbs-api';

const [address, engine, seconds] = process.argv.slice(2);
const DEPTH = 64;
const SLOT = 32 * 1024;
const RECEIVES = 2 * DEPTH;
const IDLE_MS = Math.min(5, Number(seconds)) * 1000;
const OPCODES = ['SEND', 'RDMA_WRITE', 'RDMA_READ'];

const say = (type, rest) => console.log(JSON.stringify({ type, ...rest }));
const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const line = async () => JSON.parse((await input.next()).value);

const region = (slots) => new Uint8Array(new SharedArrayBuffer(slots * SLOT));
/** Length of the `n`th request, and where its bytes stand in the pattern: no two in a row are alike. */
const lengthOf = (n) => ((n * 9973) % SLOT) + 1;
const slotOf = (n) => n % DEPTH;

const pattern = region(DEPTH);
for (let i = 0; i < pattern.length; i++) pattern[i] = (i * 31 + (i >> 8) * 7 + (i >> 15)) & 255;
const same = (bytes, at, n) =>
  Buffer.compare(
    Buffer.from(bytes.buffer, at, lengthOf(n)),
    Buffer.from(pattern.buffer, slotOf(n) * SLOT, lengthOf(n)),
  ) === 0;

const device = await openDevice({ address, engine, link: 'udp' });
const events = [];
device.onEvent(({ type }) => events.push(type));
const pd = await device.allocPd();
const cq = await device.createCq(1024);
const remoteAccess = { access: { remoteWrite: true, remoteRead: true } };
const received = region(RECEIVES);
const read = region(DEPTH);
const written = region(DEPTH);
const [source, receiveMr, readMr] = [
  await pd.registerMr(pattern, remoteAccess),
  await pd.registerMr(received),
  await pd.registerMr(read),
];
const writtenMr = await pd.registerMr(written, remoteAccess);
const qp = await pd.createQp({ sendCq: cq, cap: { maxSendWr: DEPTH, maxRecvWr: RECEIVES } });
const remoteOf = (mr) => ({ addr: `${mr.remote().addr}`, rkey: mr.remote().rkey });
await qp.toInit();
const postReceive = (i) =>
  qp.postRecv({ wrId: BigInt(i), sgList: [{ mr: receiveMr, offset: i * SLOT, length: SLOT }] });
for (let i = 0; i < RECEIVES; i++) postReceive(i);
say('data', { data: { ...qp.connectionData(), source: remoteOf(source), written: remoteOf(writtenMr) } });
const peer = await line();
await qp.connect(peer);
await line(); // The other one is connected, too.

const counts = { SEND: 0, RDMA_WRITE: 0, RDMA_READ: 0, RECV: 0, wrong: 0, bytes: 0 };
let next = 0;
let out = 0;

function post() {
  const n = next++;
  const opcode = OPCODES[n % 3];
  const offset = slotOf(n) * SLOT;
  const length = lengthOf(n);
  const mr = opcode === 'RDMA_READ' ? readMr : source;
  const target = opcode === 'RDMA_READ' ? peer.source : peer.written;
  qp.postSend({
    wrId: BigInt(n),
    opcode,
    signaled: true,
    sgList: [{ mr, offset, length }],
    ...(opcode === 'SEND'
      ? {}
      : { remote: { addr: BigInt(target.addr) + BigInt(offset), rkey: target.rkey } }),
  });
  out++;
}

/** The SENDs are the requests 0, 3, 6, … of the other peer, and arrive in this order. */
let sends = 0;

function complete({ status, opcode, wrId, byteLen }) {
  if (status !== 'SUCCESS') throw new Error(`${opcode}: ${status}`);
  counts[opcode]++;
  if (opcode === 'RECV') {
    const n = 3 * sends++;
    if (byteLen !== lengthOf(n) || !same(received, Number(wrId) * SLOT, n)) counts.wrong++;
    postReceive(Number(wrId));
    return;
  }
  out--;
  const n = Number(wrId);
  counts.bytes += lengthOf(n);
  if (opcode === 'RDMA_READ') {
    if (!same(read, slotOf(n) * SLOT, n)) counts.wrong++;
    read.fill(0, slotOf(n) * SLOT, slotOf(n) * SLOT + lengthOf(n));
  }
}

/** The data that the other one wrote: its requests 1, 4, 7, … from the pattern's slot to the same one here. */
function checkWritten() {
  for (let n = 1; n < 3 * DEPTH; n += 3) if (!same(written, slotOf(n) * SLOT, n)) counts.wrong++;
}

let measure = false;
const end = performance.now() + Number(seconds) * 1000;
async function traffic() {
  let drained = false;
  while (!measure) {
    for (const wc of cq.poll(64)) complete(wc);
    while (out < DEPTH && performance.now() < end) post();
    if (out === 0 && !drained) {
      drained = true;
      say('drained', {});
    }
    await Promise.race([cq.wait(), measured]);
  }
}

const measured = line().then(() => {
  measure = true;
});
try {
  await traffic();
  checkWritten();
  await sleep(500);
  const before = process.cpuUsage();
  const started = performance.now();
  await sleep(IDLE_MS);
  const { user, system } = process.cpuUsage(before);
  const idleCpuPercent = ((user + system) / 1000 / (performance.now() - started)) * 100;
  const { link, retransmittedPackets, timeouts } = await device.counters();
  say('result', {
    counts,
    events,
    idleCpuPercent,
    sendBlocked: link.sendBlocked,
    retransmittedPackets,
    timeouts,
  });
  await device.close();
  process.exit(0);
} catch (error) {
  // Diagnostics of a connection that ended.
  const { link, ...all } = await device.counters();
  const nonzero = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value > 0));
  const seconds = performance.now() / 1000;
  say('result', {
    counts,
    events,
    error: `${error.stack ?? error}`,
    seconds,
    counters: nonzero(all),
    link: nonzero(link),
  });
  process.exit(1);
}
