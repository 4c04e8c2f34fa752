// The server of test/sockets/streams.test.ts that is killed: a listener of each kind, which answers 'x' once. It prints their ports.
import http from 'node:http';
import { answerRequests, listen } from '@node-roce/rdmacm';
import { createServer } from '@node-roce/rsocket';

const answers = (socket) => socket.on('error', () => {}).on('data', () => socket.write('x'));
const listenWith = async (serve) => {
  const listener = await listen({ port: 0 });
  void (async () => {
    for await (const connection of listener) serve(connection);
  })();
  return listener.port;
};
const service = http.createServer((request, response) => {
  if (request.url === '/x') response.end('x');
});
const ports = {
  messages: await listenWith((connection) => connection.send('x').catch(() => {})),
  stream: await listenWith((connection) => answers(connection.stream())),
  requests: await listenWith((connection) =>
    answerRequests(connection, (body) => (body[0] === 120 ? 'x' : new Promise(() => {}))).catch(() => {}),
  ),
  rsocket: (await createServer({ port: 0 }, answers)).port,
  http: (await createServer({ port: 0 }, (socket) => service.emit('connection', socket))).port,
};
console.log(JSON.stringify(ports));
process.stdin.resume().on('end', () => process.exit());
