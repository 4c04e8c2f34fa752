/** Node's own sockets: `node:net` between two processes, the same bytes through a stream. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { pinned } from '../pinning.mjs';

const SIDE = fileURLToPath(new URL('../sides/tcp.mjs', import.meta.url));
let port = 15_000;

function start(side, args) {
  const [execPath, execArgv] = pinned(side, process.execPath, []);
  return fork(SIDE, args.map(String), { execPath, execArgv, stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
}

async function pair(roles, size, count) {
  port = 15_000 + ((port + 1) % 100);
  const server = start(1, [roles[0], port, size, count]);
  try {
    await once(server, 'message');
    const client = start(0, [roles[1], port, size, count]);
    const [result] = await once(client, 'message');
    return result;
  } finally {
    server.kill();
  }
}

export const tcp = {
  name: 'Node TCP',
  missing: () => undefined,
  stream({ size, bytes }) {
    // A write of 64 bytes each is nobody's stream: as a program would, they go in larger pieces.
    const chunk = Math.min(1 << 20, Math.max(size, 64));
    return pair(['sink', 'send'], chunk, Math.ceil(bytes / chunk));
  },
  pingpong({ size, count }) {
    return pair(['mirror', 'echo'], size, count);
  },
};
