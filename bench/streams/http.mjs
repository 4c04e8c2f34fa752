/** HTTP over sockets of RDMA: an agent of 100 sockets, each answer compared with its request. Usage: node bench/streams/http.mjs [requests] */
import { once } from 'node:events';
import http from 'node:http';
import { buffer } from 'node:stream/consumers';
import { createConnection, createServer } from '../../packages/rsocket/dist/index.js';

const N = Number(process.argv[2] ?? 100_000);
const service = http.createServer((q, r) => {
  q.pipe(r);
});
const listener = await createServer(
  { port: 0, address: '127.0.62.1', receiveBuffer: 16384, sendBuffer: 16384, queue: 32 },
  (s) => service.emit('connection', s),
);
const agent = new http.Agent({ keepAlive: true, maxSockets: 100 });
let sockets = 0;
agent.createConnection = (o) => {
  sockets++;
  return createConnection({ ...o, receiveBuffer: 16384, sendBuffer: 16384, queue: 32 });
};
let done = 0,
  wrong = 0,
  next = 0;
const began = performance.now();
async function worker() {
  for (;;) {
    const i = next++;
    if (i >= N) return;
    const request = http.request({
      agent,
      host: '127.0.62.1',
      port: listener.port,
      method: 'POST',
      path: `/${i}`,
    });
    const body = `request ${i} `.repeat(1 + (i % 20));
    request.end(body);
    const [response] = await once(request, 'response');
    if (`${await buffer(response)}` !== body) wrong++;
    done++;
  }
}
await Promise.all(Array.from({ length: 100 }, worker));
console.log({ done, wrong, sockets, seconds: (performance.now() - began) / 1000 });
agent.destroy();
service.closeAllConnections();
await listener.close();
