// A key-value store that is read without its server: a client gets the address of the table when it connects, finds the
// row of a key by its hash, and READs it. The server's program sees nothing of it.
import { connect, listen } from 'node-roce/rdmacm';

const ROWS = 256;
const ROW = 64; // Length of the value, then the value.

const rowOf = (key) => [...key].reduce((hash, letter) => (hash * 31 + letter.charCodeAt(0)) % ROWS, 7);

// The server: a table in registered memory. Its own writes are plain stores.
const table = new Uint8Array(ROWS * ROW);
function put(key, value) {
  const bytes = new TextEncoder().encode(value);
  table[rowOf(key) * ROW] = bytes.length;
  table.set(bytes, rowOf(key) * ROW + 1);
}

const listener = await listen({ address: '127.0.43.1', port: 7471 });
const serving = (async () => {
  for await (const connection of listener) {
    const region = await connection.pd.registerMr(table, { access: { remoteRead: true } });
    const { addr, rkey } = region.remote();
    await connection.send(JSON.stringify({ addr: `${addr}`, rkey }));
    await connection.closed;
    await region.deregister();
    await connection.close();
  }
})();

// The client.
const connection = await connect('127.0.43.1:7471', { source: '127.0.43.2' });
const where = JSON.parse(new TextDecoder().decode(await connection.receive()));
const row = new Uint8Array(ROW);
const mine = await connection.pd.registerMr(row);
async function get(key) {
  const addr = BigInt(where.addr) + BigInt(rowOf(key) * ROW);
  await connection.qp.read({ mr: mine, length: ROW }, { addr, rkey: where.rkey });
  return new TextDecoder().decode(row.subarray(1, 1 + row[0]));
}

put('colour', 'green');
put('shape', 'round');
console.log(`colour: ${await get('colour')}, shape: ${await get('shape')}`);
put('colour', 'blue');
console.log(`colour: ${await get('colour')}`);

await mine.deregister();
await connection.close();
await listener.close();
await serving;
