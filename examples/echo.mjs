// RC: messages there and back. The server answers each with the same text in capitals; its iteration ends
// with its device.
import { openDevice } from 'node-roce';

const SLOTS = 8;
const BYTES = 256;

async function open(address) {
  const device = await openDevice({ address });
  const pd = await device.allocPd();
  const cq = await device.createCq();
  const qp = await pd.createQp({ sendCq: cq });
  // A receive for each slot; the wrId of a completion is the slot that the message took.
  const inbox = await pd.registerMr(new Uint8Array(SLOTS * BYTES));
  const receive = (slot) =>
    qp.postRecv({ wrId: slot, sgList: [{ mr: inbox, offset: slot * BYTES, length: BYTES }] });
  const text = (wc) => new TextDecoder().decode(inbox.bytes(wc.wrIdNumber * BYTES, wc.byteLen));
  const send = (message) =>
    qp.postSend({ opcode: 'SEND', inline: true, sgList: [new TextEncoder().encode(message)] });
  await qp.toInit();
  for (let slot = 0; slot < SLOTS; slot++) receive(slot);
  return { device, cq, qp, receive, text, send };
}

const server = await open('127.0.41.1');
const client = await open('127.0.41.2');
await server.qp.connect(client.qp.connectionData());
await client.qp.connect(server.qp.connectionData());

async function serve() {
  for await (const wc of server.cq) {
    server.send(server.text(wc).toUpperCase());
    server.receive(wc.wrIdNumber);
  }
}
const serving = serve();

for (const message of ['there', 'and', 'back again']) {
  client.send(message);
  const wc = await client.cq.next();
  console.log(`${message} → ${client.text(wc)}`);
  client.receive(wc.wrIdNumber);
}
await client.device.close();
await server.device.close();
await serving;
