/**
 * One end of test/links/raw-packet.test.ts, in a network namespace: `send COUNT`, `receive COUNT`, or `arp`. Prints the result
 * as one line of JSON.
 */
import { openDevice } from '@node-roce/verbs-api';
import { CREDIT_TYPE, DATA_TYPE, filterOf, HEADER_BYTES, pattern, shapeOf, writeHeader } from './frames.mjs';

const [role, interfaceName, engine, argument] = process.argv.slice(2);
const COUNT = Number(argument);
/** Frames on the way at once, and frames between two credits: the peer's socket holds more. */
const WINDOW = 256;
const CREDIT_EVERY = 32;
const ROOM = 9216;

const device = await openDevice({ interface: interfaceName, engine });
const pd = await device.allocPd();
const sendCq = await device.createCq(2 * WINDOW);
const recvCq = await device.createCq(2 * WINDOW);
const cap = { maxSendWr: WINDOW, maxRecvWr: WINDOW };
const qp = await pd.createQp({ type: 'RAW_PACKET', sendCq, recvCq, cap });
const memory = (bytes) => new Uint8Array(new SharedArrayBuffer(bytes));
const say = (result) => console.log(JSON.stringify(result));

if (role === 'send') await send();
else if (role === 'receive') await receive();
else await arp();
await device.close();

/** Each frame is a header and a piece of the pattern, by reference. */
async function send() {
  const bytes = memory(pattern().length);
  bytes.set(pattern());
  const payload = await pd.registerMr(bytes);
  const headers = memory(WINDOW * HEADER_BYTES);
  const headerMr = await pd.registerMr(headers);
  const credits = memory(WINDOW * 64);
  const creditMr = await pd.registerMr(credits);
  await qp.setFilter(filterOf(CREDIT_TYPE));
  await qp.activate();
  const post = (slot) =>
    qp.postRecv({ wrId: slot, sgList: [{ mr: creditMr, offset: slot * 64, length: 64 }] });
  for (let i = 0; i < WINDOW; i++) post(i);
  console.log('ready');
  let [sent, done, credited, bytesSent] = [0, 0, 0, 0];
  while (done < COUNT || credited < COUNT) {
    for (const wc of sendCq.poll(WINDOW)) {
      if (wc.status !== 'SUCCESS') throw new Error(`frame ${wc.wrId}: ${wc.status}`);
      done++;
    }
    for (const wc of recvCq.poll(WINDOW)) {
      const slot = Number(wc.wrId);
      credited = Math.max(credited, new DataView(credits.buffer, slot * 64 + 14).getUint32(0));
      post(slot);
    }
    while (sent < COUNT && sent - credited < WINDOW && sent - done < WINDOW) {
      const slot = sent % WINDOW;
      const { length, from } = shapeOf(sent);
      writeHeader(headers.subarray(slot * HEADER_BYTES), DATA_TYPE, sent);
      qp.postSend({
        opcode: 'SEND',
        wrId: sent,
        signaled: true,
        sgList: [
          { mr: headerMr, offset: slot * HEADER_BYTES, length: HEADER_BYTES },
          { mr: payload, offset: from, length: length - HEADER_BYTES },
        ],
      });
      bytesSent += length;
      sent++;
    }
    await new Promise(setImmediate);
  }
  say({ sent, bytes: bytesSent });
}

/** Compares each frame byte by byte. The receive is in two elements. */
async function receive() {
  const expected = Buffer.from(pattern());
  const frames = memory(WINDOW * ROOM);
  const mr = await pd.registerMr(frames);
  const view = Buffer.from(frames.buffer);
  await qp.setFilter(filterOf(DATA_TYPE));
  await qp.activate();
  const post = (slot) =>
    qp.postRecv({
      wrId: slot,
      sgList: [
        { mr, offset: slot * ROOM, length: 40 },
        { mr, offset: slot * ROOM + 40, length: ROOM - 40 },
      ],
    });
  for (let i = 0; i < WINDOW; i++) post(i);
  console.log('ready');
  const header = new Uint8Array(HEADER_BYTES);
  const credit = new Uint8Array(60);
  let [received, bytes] = [0, 0];
  while (received < COUNT) {
    for (const wc of recvCq.poll(WINDOW)) {
      if (wc.status !== 'SUCCESS') throw new Error(`after ${received} frames: ${wc.status}`);
      const slot = Number(wc.wrId);
      const at = slot * ROOM;
      const { length, from } = shapeOf(received);
      writeHeader(header, DATA_TYPE, received);
      const isEqual =
        wc.byteLen === length &&
        view.compare(header, 0, HEADER_BYTES, at, at + HEADER_BYTES) === 0 &&
        view.compare(expected, from, from + length - HEADER_BYTES, at + HEADER_BYTES, at + length) === 0;
      if (!isEqual) throw new Error(`frame ${received} is another: ${wc.byteLen} bytes of ${length}`);
      received++;
      bytes += length;
      post(slot);
      if (received % CREDIT_EVERY === 0 || received === COUNT) {
        writeHeader(credit, CREDIT_TYPE, received);
        await qp.send(credit);
      }
    }
    await new Promise(setImmediate);
  }
  const { receivedPackets, outOfBuffer, droppedPackets } = await qp.counters();
  say({ received, bytes, receivedPackets, outOfBuffer, droppedPackets });
}

/** Asks the kernel at the far end who has its address (RFC 826), and answers nothing. */
async function arp() {
  const bytes = memory(4096);
  const mr = await pd.registerMr(bytes);
  const mac = Uint8Array.from(device.query().interface.mac.split(':'), (byte) => Number.parseInt(byte, 16));
  const [sender, target] = argument.split(',').map((address) => address.split('.').map(Number));
  // Replies to us alone, and not our own request, which goes to all.
  await qp.setFilter([
    [
      { offset: 0, value: mac },
      { offset: 12, value: Uint8Array.of(8, 6) },
    ],
  ]);
  await qp.activate();
  qp.postRecv({ sgList: [{ mr, length: 2048 }] });
  const question = Uint8Array.of(
    ...[255, 255, 255, 255, 255, 255, ...mac, 8, 6],
    ...[0, 1, 8, 0, 6, 4, 0, 1, ...mac, ...sender, 0, 0, 0, 0, 0, 0, ...target],
  );
  await qp.send(question);
  const answer = await recvCq.next();
  say({
    status: answer.status,
    frame: Buffer.from(bytes.slice(0, answer.byteLen)).toString('hex'),
    mac: Buffer.from(mac).toString('hex'),
  });
}
