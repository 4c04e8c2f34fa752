/**
 * One of two equal peers over a cable: `requests` requests, SEND, WRITE and READ in turn, each compared byte for byte.
 * Argument: JSON with `device` (openDevice's options), `requests`, `bytes`, `mtu`, `payload` (bytes, which its data repeats).
 *
 * Lines of JSON out: `data` (for the other peer), `connected`, `done` (its own requests have ended), `result`. Lines in: the other
 * peer's data, `begin`, `end`; before `begin` any number of `counts`, each answered by `counts` with those of the link.
 */
import { createInterface } from 'node:readline';
import { openDevice } from '@node-roce/verbs-api';

const { device: options, requests, bytes: size, mtu, payload } = JSON.parse(process.argv[2]);
const DEPTH = 16;
const OPCODES = ['SEND', 'RDMA_WRITE', 'RDMA_READ'];

const say = (type, rest = {}) => console.log(JSON.stringify({ type, ...rest }));
const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const line = async () => JSON.parse((await input.next()).value);

const device = await openDevice(options);
const pd = await device.allocPd();
const cq = await device.createCq(4 * DEPTH);
const access = { localWrite: true, remoteWrite: true, remoteRead: true };
const region = () => pd.registerMr(new Uint8Array(new SharedArrayBuffer(DEPTH * size)), { access });
const [source, received, written, read] = [await region(), await region(), await region(), await region()];
const pattern = source.bytes();
for (let i = 0; i < pattern.length; i++)
  pattern[i] = payload ? payload[i % payload.length] : (i * 31 + (i >> 8) * 7 + (i >> 15)) & 255;
const qp = await pd.createQp({ sendCq: cq, cap: { maxSendWr: DEPTH, maxRecvWr: 2 * DEPTH } });
await qp.toInit();
const postReceive = (slot) =>
  qp.postRecv({ wrId: BigInt(slot), sgList: [{ mr: received, offset: slot * size, length: size }] });
for (let i = 0; i < DEPTH; i++) postReceive(i);
const remoteOf = (mr) => ({ addr: `${mr.remote().addr}`, rkey: mr.remote().rkey });
const { link, limitations, activeMtu } = device.query();
say('data', {
  data: { ...qp.connectionData(), source: remoteOf(source), written: remoteOf(written) },
  link,
  limitations,
  activeMtu,
});
const peer = await line();
await qp.connect(peer, mtu === undefined ? {} : { pathMtu: mtu });
say('connected');
while ((await line()) === 'counts') say('counts', { link: (await device.counters()).link });

const slotOf = (n) => n % DEPTH;
/** Lengths up to the whole size, the last byte of packets and more. */
const lengthOf = (n) => (n % 5 === 0 ? size : ((n * 9973) % size) + 1);
let wrong = 0;
const check = (mr, slot, n) => {
  const from = slot * size;
  const at = slotOf(n) * size;
  const got = mr.bytes(from, lengthOf(n));
  const sent = pattern.subarray(at, at + lengthOf(n));
  if (Buffer.compare(Buffer.from(got), Buffer.from(sent)) !== 0) wrong++;
};
const counts = { SEND: 0, RDMA_WRITE: 0, RDMA_READ: 0, RECV: 0 };
let [next, out, receives] = [0, 0, 0];
const expected = Math.ceil(requests / 3);

function post() {
  const n = next++;
  const opcode = OPCODES[n % 3];
  const mr = opcode === 'RDMA_READ' ? read : source;
  const offset = slotOf(n) * size;
  const target = opcode === 'RDMA_READ' ? peer.source : peer.written;
  const remote =
    opcode === 'SEND' ? {} : { remote: { addr: BigInt(target.addr) + BigInt(offset), rkey: target.rkey } };
  qp.postSend({
    wrId: BigInt(n),
    opcode,
    signaled: true,
    sgList: [{ mr, offset, length: lengthOf(n) }],
    ...remote,
  });
  out++;
}

function complete({ opcode, wrId, byteLen }) {
  counts[opcode]++;
  if (opcode === 'RECV') {
    const n = 3 * receives++;
    if (byteLen !== lengthOf(n)) wrong++;
    check(received, Number(wrId), n);
    postReceive(Number(wrId));
    return;
  }
  out--;
  if (opcode === 'RDMA_READ') check(read, slotOf(Number(wrId)), Number(wrId));
}

while (out > 0 || next < requests || receives < expected) {
  for (const wc of cq.poll(64)) {
    if (wc.status !== 'SUCCESS') {
      const state = JSON.stringify({ counts, counters: await device.counters() });
      throw new Error(`${wc.opcode} ${wc.wrId}: ${wc.status}, ${state}`);
    }
    complete(wc);
  }
  while (out < DEPTH && next < requests) post();
  if (out > 0 || receives < expected) await cq.wait();
}
say('done');
await line();
// The last WRITE to each slot.
const last = new Map();
for (let n = 1; n < requests; n += 3) last.set(slotOf(n), n);
for (const [slot, n] of last) check(written, slot, n);
const { link: linkCounts, icrcErrors, retransmittedPackets } = await device.counters();
say('result', { counts, wrong, link: linkCounts, icrcErrors, retransmittedPackets });
await device.close();
process.exit(0);
