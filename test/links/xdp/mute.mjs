/**
 * A peer that never answers: a socket at the port of RoCE. Argument: JSON with `listen` (address). Lines of JSON out: `listening`; for each
 * line in, `counted` with the datagrams so far by destination QPN.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { bthDestQp } from '@node-roce/wire';

const { listen } = JSON.parse(process.argv[2]);
const say = (type, rest = {}) => console.log(JSON.stringify({ type, ...rest }));
const counts = {};
const socket = createSocket('udp4');
socket.on('message', (bytes) => {
  const qpn = bthDestQp(bytes, 0);
  counts[qpn] = (counts[qpn] ?? 0) + 1;
});
socket.bind(4791, listen);
await once(socket, 'listening');
say('listening');
for await (const _ of createInterface({ input: process.stdin })) say('counted', { counts });
socket.close();
