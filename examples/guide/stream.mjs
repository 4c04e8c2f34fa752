// A file through a connection: a fast source, a slow sink, and a bounded number of bytes between them.
import { createReadStream } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { connect, listen } from 'node-roce/rdmacm';

const listener = await listen({ address: '127.0.53.1', port: 7471, maxMessage: 16_384, slots: 8 });
async function serve() {
  const connection = await listener.accept();
  let bytes = 0;
  for await (const chunk of connection.stream()) {
    bytes += chunk.length;
    await new Promise((resolve) => setTimeout(resolve, 1)); // A slow reader holds the sender back.
  }
  await connection.closed;
  return bytes;
}
const serving = serve();

const file = join(tmpdir(), `node-roce-stream-${process.pid}`);
await writeFile(file, Buffer.alloc(3_276_800, 'node-roce '));
const connection = await connect('127.0.53.1:7471', { source: '127.0.53.2' });
const stream = connection.stream();
await pipeline(createReadStream(file), stream); // The peer's adapter has all of the file.
console.log(`sent ${stream.bytesWritten} bytes, received ${await serving}`);
await connection.closed;
await listener.close();
await rm(file);
