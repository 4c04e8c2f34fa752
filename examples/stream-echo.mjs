import { connect, listen } from 'node-roce/rdmacm';

// The server: at every address of this machine.
const listener = await listen({ port: 7471 });
listener.accept().then((connection) => {
  const stream = connection.stream();
  stream.pipe(stream);
});

// The client, here in the same program.
const stream = (await connect('localhost:7471')).stream();
stream.end('hello');
for await (const bytes of stream) console.log(`${bytes}`);
await listener.close();
