// A request that the peer refuses: how the failure shows, what state it leaves, and how a client goes on.
import { connect, listen } from 'node-roce/rdmacm';

const listener = await listen({ address: '127.0.54.1', port: 7471 });
async function serve(connection) {
  const region = await connection.pd.registerMr(new Uint8Array(64), { access: { remoteRead: true } });
  const { addr, rkey } = region.remote();
  await connection.send(JSON.stringify({ addr: `${addr}`, rkey }));
  await connection.closed;
  await region.deregister();
  await connection.close();
}
const serving = (async () => {
  for await (const connection of listener) serve(connection);
})();

/** Connects, and reads `length` bytes of the server's 64. */
async function read(length) {
  const connection = await connect('127.0.54.1:7471', { source: '127.0.54.2' });
  try {
    const offer = JSON.parse(new TextDecoder().decode(await connection.receive()));
    const region = await connection.pd.registerMr(new Uint8Array(length));
    try {
      await connection.qp.read({ mr: region }, { addr: BigInt(offer.addr), rkey: offer.rkey });
      return 'read';
    } catch (error) {
      return `${error.code} ${error.attribute}, the queue pair is in ${connection.qp.state}`;
    } finally {
      await region.deregister();
    }
  } finally {
    await connection.close();
  }
}

console.log(await read(64));
console.log(await read(65)); // One byte beyond the region: the request fails, and its connection with it.
console.log(await read(64)); // A new connection.

// A call that is wrong in itself throws, and changes nothing.
try {
  await connect('127.0.54.1:7471', { source: '127.0.54.2', slotz: 3 });
} catch (error) {
  console.log(error.code, error.attribute, '-', error.expected);
}
// Nobody listens at this port.
try {
  await connect('127.0.54.1:7472', { source: '127.0.54.2' });
} catch (error) {
  console.log(error.code, error.reason);
}
await listener.close();
await serving;
