// A server of messages: answers each with its text in capitals.
import { listen } from 'node-roce/rdmacm';

const [address = '127.0.51.1', port = '7471'] = process.argv.slice(2);
const listener = await listen({ address, port: Number(port) });
console.log(`listening at ${address}:${listener.port}`);

const connections = new Set();
process.once('SIGTERM', async () => {
  await listener.close(); // Ends the iteration below.
  await Promise.all([...connections].map((connection) => connection.close()));
});

async function serve(connection) {
  connections.add(connection);
  try {
    for await (const message of connection) {
      const text = new TextDecoder().decode(message);
      await connection.send(text.toUpperCase());
    }
  } catch (error) {
    console.error('a client was lost:', error.message);
  } finally {
    await connection.close(); // The client has disconnected, or is gone.
    connections.delete(connection);
  }
}

for await (const connection of listener) void serve(connection);
