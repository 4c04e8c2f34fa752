// One side of a Node TCP measurement: `serve` takes bytes and answers when it has them all, or echoes
// them; `send` and `echo` drive it. Arguments: role, port, size, count.
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { performance } from 'node:perf_hooks';
import { percentile } from '../statistics.mjs';

const HOST = '127.0.0.2';
const [role, port, size, count] = process.argv.slice(2).map((v, i) => (i === 0 ? v : Number(v)));

/** Answers with one byte each time `count` × `size` bytes have come. */
async function sink() {
  const server = createServer({ noDelay: true });
  server.listen(port, HOST);
  await once(server, 'listening');
  process.send('listening');
  const [socket] = await once(server, 'connection');
  const total = size * count;
  let left = total;
  socket.on('data', (chunk) => {
    left -= chunk.length;
    if (left > 0) return;
    left += total;
    socket.write('.');
  });
  await once(socket, 'close');
  server.close();
}

async function mirror() {
  const server = createServer({ noDelay: true });
  server.listen(port, HOST);
  await once(server, 'listening');
  process.send('listening');
  const [socket] = await once(server, 'connection');
  socket.on('data', (chunk) => socket.write(chunk));
  await once(socket, 'close');
  server.close();
}

async function open() {
  const socket = connect({ port, host: HOST, noDelay: true });
  await once(socket, 'connect');
  return socket;
}

async function send() {
  const socket = await open();
  const chunk = Buffer.alloc(size, 0x5a);
  let start;
  for (let round = 0; round < 2; round++) {
    start = performance.now();
    for (let i = 0; i < count; i++) if (!socket.write(chunk)) await once(socket, 'drain');
    await once(socket, 'data');
  }
  const seconds = (performance.now() - start) / 1000;
  socket.destroy();
  process.send({ gbps: (8e-9 * size * count) / seconds, messagesPerSecond: count / seconds });
}

async function echo() {
  const socket = await open();
  const message = Buffer.alloc(size, 0x5a);
  const times = new Float64Array(count);
  for (let i = -count >> 2; i < count; i++) {
    const start = performance.now();
    socket.write(message);
    for (let got = 0; got < size; ) got += (await once(socket, 'data'))[0].length;
    if (i >= 0) times[i] = (performance.now() - start) * 1000;
  }
  socket.destroy();
  times.sort();
  process.send({ p50: percentile(times, 50), p99: percentile(times, 99), p999: percentile(times, 99.9) });
}

await { sink, mirror, send, echo }[role]();
process.disconnect();
