/** One side of a transfer: `server KIND` prints the port, then how long it took; `client KIND PORT FILE` sends the file. */
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { createServer, connect as tcp } from 'node:net';
import { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { connect, listen } from '../../packages/rdmacm/dist/index.js';
import { connect as connectSocket, listen as listenSockets } from '../../packages/rsocket/dist/index.js';

const CHUNK = 65_536;
const UNDER_WAY = 16;
const [ADDRESS, OWN] = ['127.0.61.1', '127.0.61.2'];
const [role, kind, port, file] = process.argv.slice(2);

/** Seconds of processor that this side has used since it started. */
function cpu() {
  const { user, system } = process.cpuUsage();
  return (user + system - base) / 1e6;
}
let base = 0;

/** Counts bytes from the first one on; resolves with bytes per second. */
class Meter {
  #since = 0;
  #bytes = 0;
  take({ length }) {
    if (this.#since === 0) begin();
    this.#since ||= performance.now();
    this.#bytes += length;
  }
  print() {
    const seconds = (performance.now() - this.#since) / 1000;
    console.log(JSON.stringify({ bytes: this.#bytes, rate: this.#bytes / seconds, cpu: cpu() }));
  }
}

function begin() {
  base = 0;
  base = cpu() * 1e6;
}

const meter = new Meter();
const sink = () =>
  new Writable({
    write(chunk, _encoding, callback) {
      meter.take(chunk);
      callback();
    },
  });

async function serve() {
  if (kind === 'net') {
    const server = createServer((socket) => {
      pipeline(socket, sink()).then(() => {
        meter.print();
        server.close();
      });
    });
    server.listen(0, ADDRESS, () => console.log(server.address().port));
    return;
  }
  if (kind === 'rsocket') {
    const server = await listenSockets({ address: ADDRESS, port: 0 });
    console.log(server.port);
    await pipeline(await server.accept(), sink());
    meter.print();
    await server.close();
    return;
  }
  const listener = await listen({ address: ADDRESS, port: 0 });
  console.log(listener.port);
  const connection = await listener.accept();
  if (kind.startsWith('sixteen')) {
    for await (const message of connection) meter.take(message);
    meter.print();
    await connection.close();
  } else if (kind === 'web') {
    const { readable, writable } = connection.streams();
    const closed = writable.close();
    for await (const chunk of readable) meter.take(chunk);
    meter.print();
    await closed;
  } else {
    const stream = connection.stream();
    await pipeline(stream, sink());
    meter.print();
  }
  await connection.closed;
  await listener.close();
}

/** Keeps sixteen messages under way: what a program does by hand. */
async function sixteen(connection, chunks) {
  const sending = new Set();
  for await (const chunk of chunks) {
    const sent = connection.send(chunk).finally(() => sending.delete(sent));
    sending.add(sent);
    if (sending.size >= UNDER_WAY) await Promise.race(sending);
  }
  await Promise.all(sending);
}

async function* fromMemory(bytes) {
  const chunk = Buffer.alloc(CHUNK, 7);
  for (let sent = 0; sent < bytes; sent += CHUNK) yield chunk;
}

async function send() {
  if (kind === 'net') {
    begin();
    return pipeline(createReadStream(file), tcp(Number(port), ADDRESS));
  }
  if (kind === 'rsocket') {
    const socket = await connectSocket({ host: ADDRESS, port: Number(port), source: OWN });
    begin();
    await pipeline(createReadStream(file), socket);
    if (!socket.closed) await once(socket, 'close');
    return;
  }
  const connection = await connect(`${ADDRESS}:${port}`, { source: OWN });
  begin();
  if (kind === 'sixteen') await sixteen(connection, createReadStream(file));
  else if (kind === 'sixteen-memory') {
    const handle = await open(file);
    const { size } = await handle.stat();
    await handle.close();
    await sixteen(connection, fromMemory(size));
  } else if (kind === 'web') {
    const { readable, writable } = connection.streams();
    const handle = await open(file);
    await handle.readableWebStream({ type: 'bytes' }).pipeTo(writable);
    await handle.close();
    for await (const _ of readable);
  } else await pipeline(createReadStream(file), connection.stream());
  if (kind.startsWith('sixteen')) await connection.close();
  else await connection.closed;
}

if (role === 'server') await serve();
else {
  await send();
  console.log(JSON.stringify({ cpu: cpu() }));
}
