/**
 * A server that sends back what it gets, or a client that checks it. Argument: JSON with `listen` (address) or `to` (address, port) and
 * `bytes`. Lines of JSON out: `listening` with the port, or `echoed` with the number of bytes that came back as they were sent.
 */
import { createHash } from 'node:crypto';
import { connect, createServer } from 'node:net';

const { listen, to, bytes } = JSON.parse(process.argv[2]);
const say = (type, rest) => console.log(JSON.stringify({ type, ...rest }));

if (listen !== undefined) {
  const server = createServer((socket) => socket.pipe(socket));
  server.listen(0, listen, () => say('listening', { port: server.address().port }));
} else {
  const sent = createHash('sha256');
  const came = createHash('sha256');
  const socket = connect(to);
  let received = 0;
  socket.on('data', (chunk) => {
    came.update(chunk);
    received += chunk.length;
    if (received < bytes) return;
    const equal = sent.digest('hex') === came.digest('hex');
    say('echoed', { bytes: equal ? received : 0 });
    socket.destroy();
  });
  for (let left = bytes; left > 0; ) {
    const chunk = Buffer.alloc(Math.min(left, 65_536));
    for (let i = 0; i < chunk.length; i++) chunk[i] = (left - i) * 31 + ((left - i) >> 8);
    sent.update(chunk);
    socket.write(chunk);
    left -= chunk.length;
  }
}
