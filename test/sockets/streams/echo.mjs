// The server of test/sockets/streams.test.ts: without an option but the port. It prints the port, and ends when its parent does.
import { listen } from '@node-roce/rdmacm';

const listener = await listen({ port: 0 });
console.log(listener.port);
process.stdin.resume().on('end', () => process.exit());
for await (const connection of listener) {
  const stream = connection.stream();
  stream.on('error', () => {});
  stream.pipe(stream);
}
