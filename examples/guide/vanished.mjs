// A client that outlives its server: it finds out that the server is gone, and connects again once it is back.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connect } from 'node-roce/rdmacm';

const options = {
  source: '127.0.55.2',
  // A probe each 100 ms. A request is given up after 5 times 2 × 67 ms without an answer.
  keepAlive: 100,
  ackTimeout: 14,
  retryCount: 4,
  // A request to connect is repeated each 0.13 s, 3 times, instead of 15 times each 4.6 s.
  timing: { responseTimeout: 14, packetLifetime: 13, maxRetries: 3 },
};

/** A connection; tries until there is one. */
async function reconnect() {
  for (let pause = 50; ; pause = Math.min(2 * pause, 5000)) {
    try {
      return await connect('127.0.55.1:7471', options);
    } catch (error) {
      if (!['ERR_ROCE_CM_REFUSED', 'ERR_ROCE_CM_UNREACHABLE'].includes(error.code)) throw error;
      await sleep(pause);
    }
  }
}

const program = fileURLToPath(new URL('server.mjs', import.meta.url));
const start = () => spawn(process.execPath, [program, '127.0.55.1'], { stdio: 'ignore' });

let server = start();
for (let round = 1; round <= 2; round++) {
  const connection = await reconnect();
  await connection.send('are you there?');
  console.log(new TextDecoder().decode(await connection.receive()));
  const ended = once(server, 'exit');
  server.kill('SIGKILL'); // No time for a farewell.
  await ended;
  if (round === 1) {
    // This side only waits: `keepAlive` finds out.
    await connection.receive().catch((error) => console.log(`gone: ${error.attribute}`));
    server = start();
  }
  await connection.close();
}
