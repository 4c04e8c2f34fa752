// A stream with back-pressure: a fast source, a slow sink, and no more than `slots` messages between them.
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { connect, listen } from '@node-roce/rdmacm';

// Both sides need the same sizes.
const options = { maxMessage: 16_384, slots: 8 };

/** A Writable that sends each chunk as a message. Its callback waits for `send`, so the source waits, too. */
const sink = (connection) =>
  new Writable({
    highWaterMark: options.maxMessage,
    write: (chunk, _encoding, callback) => {
      connection.send(chunk).then(() => callback(), callback);
    },
    // An empty message is the end of the stream.
    final: (callback) => {
      connection.send('').then(() => callback(), callback);
    },
    // A source that failed: the reader hears of it, because the connection ends before the stream does.
    destroy: (error, callback) => {
      connection.close().then(() => callback(error), callback);
    },
  });

/** A Readable of the arriving messages: it takes messages only as fast as it is read. Destroying it closes the connection. */
const source = (connection) =>
  new Readable({
    highWaterMark: options.maxMessage,
    async read() {
      try {
        const message = await connection.receive();
        if (message === undefined) throw new Error('the connection ended before the stream did');
        this.push(message.length === 0 ? null : message);
      } catch (error) {
        this.destroy(error);
      }
    },
    destroy: (error, callback) => {
      connection.close().then(() => callback(error), callback);
    },
  });

const listener = await listen({ address: '127.0.53.1', port: 7471, ...options });
async function serve() {
  const connection = await listener.accept();
  let bytes = 0;
  for await (const chunk of source(connection)) {
    bytes += chunk.length;
    await new Promise((resolve) => setTimeout(resolve, 1)); // A slow reader.
  }
  await connection.close();
  return bytes;
}
const serving = serve();

const connection = await connect('127.0.53.1:7471', { source: '127.0.53.2', ...options });
async function* numbers() {
  for (let i = 0; i < 200; i++) yield Buffer.alloc(options.maxMessage, i);
}
await pipeline(Readable.from(numbers(), { objectMode: false }), sink(connection));
await connection.close();
console.log(`sent ${200 * options.maxMessage} bytes, received ${await serving}`);
await listener.close();
