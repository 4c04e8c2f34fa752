/**
 * Two queue pairs of one device that are connected to each other: 20 SENDs of up to 20,000 bytes, compared. Argument: JSON with
 * openDevice's options. A line of JSON out: `result` with the link, messages that came as they were sent, and the link's counts.
 */
import { openDevice } from '@node-roce/verbs-api';

const MESSAGES = 20;
const SIZE = 20_000;
const device = await openDevice(JSON.parse(process.argv[2]));
const pd = await device.allocPd();
const cq = await device.createCq(4 * MESSAGES);
const cap = { maxSendWr: MESSAGES, maxRecvWr: MESSAGES };
const [a, b] = [await pd.createQp({ sendCq: cq, cap }), await pd.createQp({ sendCq: cq, cap })];
await a.connect(b.connectionData());
await b.connect(a.connectionData());
const bytes = Uint8Array.from({ length: MESSAGES + SIZE }, (_, i) => (i * 31 + (i >> 8)) & 255);
const source = await pd.registerMr(bytes);
const into = await pd.registerMr(new Uint8Array(MESSAGES * SIZE));
for (let i = 0; i < MESSAGES; i++)
  b.postRecv({ wrId: i, sgList: [{ mr: into, offset: i * SIZE, length: SIZE }] });
const lengthOf = (i) => SIZE - i * 777;
for (let i = 0; i < MESSAGES; i++)
  a.postSend({ opcode: 'SEND', signaled: true, sgList: [{ mr: source, offset: i, length: lengthOf(i) }] });
let received = 0;
for (let left = 2 * MESSAGES; left > 0; left--) {
  const wc = await cq.next();
  if (!wc.ok) throw new Error(`${wc.opcode}: ${wc.status}`);
  if (wc.opcode !== 'RECV') continue;
  const i = Number(wc.wrId);
  const sent = bytes.subarray(i, i + lengthOf(i));
  if (Buffer.compare(into.bytes(i * SIZE, wc.byteLen), sent) === 0) received++;
}
const { link: counts } = await device.counters();
console.log(JSON.stringify({ type: 'result', link: device.query().link, received, counts }));
await device.close();
