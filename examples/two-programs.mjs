// SEND and RDMA READ between two programs, which find each other over TCP.
//
//   node two-programs.mjs server 127.0.0.1
//   node two-programs.mjs client 127.0.0.2 127.0.0.1
import { exchangeAsClient, exchangeAsServer, openDevice } from 'node-roce';

const [role, address, peer] = process.argv.slice(2);
const port = Number(process.env.PORT ?? 18600);
if (!(role === 'server' && address) && !(role === 'client' && peer)) {
  console.error('usage: two-programs.mjs server ADDRESS | two-programs.mjs client ADDRESS SERVER');
  process.exit(2);
}

const device = await openDevice({ address });
const pd = await device.allocPd();
const cq = await device.createCq();
const qp = await pd.createQp({ sendCq: cq });

const exchange =
  role === 'server'
    ? await exchangeAsServer({ host: address, port })
    : await exchangeAsClient({ host: peer, port });

if (role === 'server') {
  // Offers some memory, and waits for the message that it was read.
  const offer = await pd.registerMr(new TextEncoder().encode('the answer is 42'), {
    access: { remoteRead: true },
  });
  const inbox = await pd.registerMr(new Uint8Array(100));
  await qp.toInit();
  const received = qp.receive({ mr: inbox });
  const remote = await exchange.swap({
    ...qp.connectionData(),
    memory: offer.remote(),
    length: offer.length,
  });
  await qp.connect(remote);
  await exchange.swap('ready');
  const { byteLen } = await received;
  console.log('the client sends:', new TextDecoder().decode(inbox.bytes(0, byteLen)));
} else {
  const remote = await exchange.swap(qp.connectionData());
  await qp.connect(remote);
  await exchange.swap('ready');
  const bytes = new Uint8Array(remote.length);
  const mr = await pd.registerMr(bytes);
  await qp.read({ mr }, remote.memory);
  console.log('the server offers:', new TextDecoder().decode(bytes));
  await qp.send(new TextEncoder().encode('thank you'));
}
await exchange.close();
await device.close();
