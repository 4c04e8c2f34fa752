/**
 * Two devices of one thread, which poll: round trips of 64 B, a signaled WRITE on each of 200 queue pairs, or SENDs of 64 B one way by objects, by `postBatch`, by numbers or by
 * prepared lists. Prints what V8 allocates for each round trip or message once the code is compiled, and of SENDs what is left of a million:
 * `node side.mjs DIST PORT KIND`. `leak` keeps an object for each SEND.
 */
import { getHeapStatistics } from 'node:v8';

const [dist, port, kind] = process.argv.slice(2);
const { openDevice, SendFlags, WorkCompletion } = await import(dist);
const isStream = /^(objects|batches|numbers|prepared|leak)$/.test(kind);
const LENGTH = 64;
const WARM_UP = 60_000;
/** Messages of a slice, and slices. */
const COUNTED = isStream ? 50_000 : 5_000;
const SLICES = 8;
const MILLION = 1_000_000;
/** Messages that a call posts, of which the last is signaled, and that may be outstanding. */
const LIST = 16;
const WINDOW = 256;
/** Receives that stand ready for a stream; the other kinds have four. */
const READY = isStream ? 1024 : 16;
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
    qps.push(await pd.createQp({ sendCq, recvCq, cap: { maxSendWr: WINDOW, maxRecvWr: READY } }));
  }
  const sgList = [{ mr, offset: 0, length: LENGTH }];
  const receive = { sgList: [{ mr, offset: LENGTH, length: LENGTH }] };
  const plain = { opcode: 'SEND', signaled: false, sgList };
  const list = Array.from({ length: LIST }, (_, k) => ({ ...plain, signaled: k === LIST - 1 }));
  return {
    sendCq,
    recvCq,
    mr,
    qps,
    list,
    receive,
    plain,
    last: { ...plain, signaled: true },
    sgList,
    sent: 0,
  };
}

const [a, b] = [await openSide('127.0.0.1'), await openSide('127.0.0.2')];
for (let i = 0; i < QUEUE_PAIRS; i++) {
  await a.qps[i].connect(b.qps[i].connectionData());
  await b.qps[i].connect(a.qps[i].connectionData());
  for (let each = 0; each < (isStream ? READY : 4); each++) {
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

const prepared = kind === 'prepared' ? a.qps[0].prepare(a.list) : undefined;
const leaked = [];

/** Posts `LIST` SENDs as the kind says. */
function postList() {
  const [qp] = a.qps;
  if (prepared !== undefined) prepared.post();
  else if (kind === 'batches') qp.postBatch(a.list);
  else if (kind === 'numbers') {
    for (let i = 1; i < LIST; i++) qp.postSendOf(a.mr, 0, LENGTH);
    qp.postSendOf(a.mr, 0, LENGTH, SendFlags.SIGNALED);
  } else qp.postSend(a.list);
  if (kind === 'leak') for (let i = 0; i < LIST; i++) leaked.push({});
}

function postReceives(count) {
  const [qp] = b.qps;
  for (let i = 0; i < count; i++) {
    if (kind === 'numbers') qp.postRecvOf(b.mr, LENGTH, LENGTH);
    else qp.postRecv(b.receive);
  }
}

function sends(count) {
  let posted = 0;
  for (let done = 0, received = 0; done < count || received < count; ) {
    while (posted < count && posted - done <= WINDOW - LIST) {
      postList();
      posted += LIST;
    }
    done += LIST * take(a.sendCq);
    const arrived = take(b.recvCq);
    postReceives(arrived);
    received += arrived;
  }
}

const run = isStream ? sends : kind === 'many' ? writes : roundTrips;
const used = () => getHeapStatistics().used_heap_size;

/**
 * Bytes for each message of a slice, or undefined if V8 collected garbage meanwhile: without a collection, the heap grows by all that
 * is allocated.
 */
async function slice() {
  const witness = new WeakRef({});
  // A reference keeps its target until the end of this turn of the loop.
  await new Promise(setImmediate);
  const before = used();
  run(COUNTED);
  const bytes = used() - before;
  return witness.deref() === undefined ? undefined : bytes / COUNTED;
}

/** Bytes for each of a million messages that are still there after all garbage is collected. */
function kept() {
  gc();
  const before = used();
  run(MILLION);
  gc();
  return (used() - before) / MILLION;
}

run(WARM_UP);
const slices = [];
for (let i = 0; i < SLICES; i++) slices.push(await slice());
// Turns and timers of a slice depend on the machine, and allocate numbers; of the slices, the lowest has the fewest.
const counted = slices.filter((bytes) => bytes !== undefined);
console.log(
  JSON.stringify({ allocated: Math.min(...counted), slices, ...(isStream ? { kept: kept() } : {}) }),
);
process.exit();
