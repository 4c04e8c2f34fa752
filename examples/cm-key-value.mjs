// A key-value store: the server publishes a table, and clients READ its rows. The server's program takes no part in a READ.
import { answerRequests, Client, listen, Table } from 'node-roce/rdmacm';

// The server.
const table = new Table({ entries: 1000, entrySize: 64 });
table.set('colour', 'green').set('shape', 'round');

const listener = await listen({ address: '127.0.43.1', port: 7471 });
const serving = (async () => {
  for await (const connection of listener) {
    // Requests do what a READ cannot: here, they change the table.
    const change = (body) => {
      const [key, value] = JSON.parse(new TextDecoder().decode(body));
      table.set(key, value);
      return 'done';
    };
    answerRequests(connection, change, { table })
      .catch(console.error)
      .finally(() => connection.close());
  }
})();

// The client.
const client = new Client('127.0.43.1:7471', { source: '127.0.43.2' });
const get = async (key) => new TextDecoder().decode(await client.get(key));

console.log(`colour: ${await get('colour')}, shape: ${await get('shape')}`);
await client.request(JSON.stringify(['colour', 'blue']));
console.log(`colour: ${await get('colour')}`);
console.log(`size: ${await client.get('size')}`);

await client.close();
await listener.close();
await serving;
