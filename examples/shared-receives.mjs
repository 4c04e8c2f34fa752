// SRQ: a server with many clients keeps one stock of receives for all of them, and gets an event when it runs low.
import { openDevice } from 'node-roce';

const BYTES = 64;
const STOCK = 32;
const server = await openDevice({ address: '127.0.45.1' });
const pd = await server.allocPd();
const cq = await server.createCq(1024);
const srq = await pd.createSrq({ maxWr: STOCK, limit: STOCK / 4 });
const memory = await pd.registerMr(new Uint8Array(STOCK * BYTES));
const free = [...Array(STOCK).keys()];
const stockUp = () =>
  srq.postRecv(
    free.splice(0).map((i) => ({ wrId: i, sgList: [{ mr: memory, offset: i * BYTES, length: BYTES }] })),
  );
stockUp();

let low = 0;
server.onEvent(async ({ type }) => {
  if (type !== 'SRQ_LIMIT_REACHED') return;
  low++;
  stockUp();
  // The event comes once, until the limit is set again.
  await srq.modify({ limit: STOCK / 4 });
});

async function client(n) {
  const device = await openDevice({ address: `127.0.45.${10 + n}` });
  const clientCq = await device.createCq();
  const qp = await (await device.allocPd()).createQp({ sendCq: clientCq });
  const peer = await pd.createQp({ sendCq: cq, srq, context: `client ${n}` });
  await qp.connect(peer.connectionData());
  await peer.connect(qp.connectionData());
  for (let i = 0; i < 20; i++) {
    qp.postSend({ opcode: 'SEND', inline: true, signaled: true, sgList: [Uint8Array.of(n, i)] });
    const { status } = await clientCq.next();
    if (status !== 'SUCCESS') throw new Error(status);
  }
  await device.close();
  return [peer.qpNum, peer.context];
}

const heard = new Map();
async function listen() {
  for await (const wc of cq) {
    heard.set(wc.qpNum, (heard.get(wc.qpNum) ?? 0) + 1);
    free.push(wc.wrIdNumber);
  }
}
listen();
for (const [qpn, name] of await Promise.all([1, 2, 3, 4, 5].map(client))) {
  console.log(`${name}: ${heard.get(qpn)} messages`);
}
console.log(
  `${low > 0 ? 'stocked up in time' : 'never ran low'}; rnr naks: ${(await server.counters()).sentRnrErr}`,
);
await server.close();
