// Connections by address: a server that answers each message in capitals, and a client. No queue pair number is
// exchanged by hand: the RDMA connection manager does it, and a NIC or Linux's rdma_cm can be on the other side.
import { connect, listen } from 'node-roce/rdmacm';

const listener = await listen({ address: '127.0.42.1', port: 7471 });

async function answer(connection) {
  for await (const message of connection)
    await connection.send(new TextDecoder().decode(message).toUpperCase());
  await connection.close(); // The client has left.
}

const serving = (async () => {
  for await (const connection of listener) void answer(connection);
})();

const connection = await connect('127.0.42.1:7471', { source: '127.0.42.2' });
for (const message of ['there', 'and', 'back again']) {
  await connection.send(message);
  console.log(`${message} → ${new TextDecoder().decode(await connection.receive())}`);
}
await connection.close();
await listener.close();
await serving;
