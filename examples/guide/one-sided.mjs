// One-sided operations: the client writes, reads, counts and locks in the memory of the server, whose program only
// registers the memory and sends its address.
import { connect, listen } from 'node-roce/rdmacm';

const COUNTER = 0; // Bytes 0 to 7: a counter.
const LOCK = 8; // Bytes 8 to 15: a lock; 0 is free.
const TEXT = 64; // From byte 64 on: a text.

// The server.
const memory = new Uint8Array(4096);
const listener = await listen({ address: '127.0.52.1', port: 7471 });
async function serve() {
  const connection = await listener.accept();
  const region = await connection.pd.registerMr(memory, {
    access: { remoteWrite: true, remoteRead: true, remoteAtomic: true },
  });
  // An address is a bigint. JSON has no bigints, so send the address as text.
  const { addr, rkey } = region.remote();
  await connection.send(JSON.stringify({ addr: `${addr}`, rkey, length: region.length }));
  // The client sends a message when it is done: what it wrote before is in `memory` now.
  const done = await connection.receive();
  console.log(new TextDecoder().decode(done), new TextDecoder().decode(memory.subarray(TEXT, TEXT + 5)));
  await connection.closed;
  await region.deregister();
  await connection.close();
}
const serving = serve();

// The client.
const connection = await connect('127.0.52.1:7471', { source: '127.0.52.2' });
const offer = JSON.parse(new TextDecoder().decode(await connection.receive()));
const at = (offset) => ({ addr: BigInt(offer.addr) + BigInt(offset), rkey: offer.rkey });

const mine = new Uint8Array(64);
const region = await connection.pd.registerMr(mine);
const word = { mr: region, offset: 0, length: 8 };
const text = { mr: region, offset: 8, length: 5 };
const before = () => new BigUint64Array(mine.buffer, 0, 1)[0];

// Atomics return what the word held before.
await connection.qp.compareSwap(word, at(LOCK), 0n, 1n);
if (before() !== 0n) throw new Error('another client has the lock');
mine.set(new TextEncoder().encode('hello'), 8);
await connection.qp.write(text, at(TEXT));
await connection.qp.fetchAdd(word, at(COUNTER), 1n);
console.log(`the counter was ${before()}`);
await connection.qp.write([new Uint8Array(8)], at(LOCK)); // Releases the lock: 8 bytes of 0, copied inline.

mine.fill(0);
await connection.qp.read(text, at(TEXT));
console.log(`read: ${new TextDecoder().decode(mine.subarray(8, 13))}`);

await connection.send('the text is');
await region.deregister();
await connection.close();
await listener.close();
await serving;
