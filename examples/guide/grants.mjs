// Back-pressure without refused packets: the reader grants messages, and the sender sends no more than that.
import { connect, listen } from 'node-roce/rdmacm';

const options = { maxMessage: 16_384, slots: 8 };
const MESSAGES = 200;

const listener = await listen({ address: '127.0.57.1', port: 7471, ...options });
async function read() {
  const connection = await listener.accept();
  let messages = 0;
  for await (const _message of connection) {
    messages++;
    await new Promise((resolve) => setTimeout(resolve, 1)); // A slow reader.
    // The connection has posted a new receive for each message that it returned.
    if (messages % 4 === 0) await connection.send(Uint8Array.of(4)).catch(() => {});
  }
  const { sentRnrErr } = await listener.device.counters();
  await connection.close();
  return `${messages} messages, ${sentRnrErr} times not ready`;
}
const reading = read();

const connection = await connect('127.0.57.1:7471', { source: '127.0.57.2', ...options });
let granted = options.slots; // Receives that the reader has posted from the beginning.
for (let i = 0; i < MESSAGES; i++) {
  while (granted === 0) {
    const grant = await connection.receive();
    if (grant === undefined) throw new Error('the reader has closed the connection');
    granted += grant[0];
  }
  granted--;
  await connection.send(new Uint8Array(options.maxMessage).fill(i));
}
await connection.close();
console.log(await reading);
await listener.close();
