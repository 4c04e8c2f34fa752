// A client that notices when its server is gone, and connects again when the server is back.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connect } from 'node-roce/rdmacm';

const options = {
  source: '127.0.55.2',
  // After 100 ms of silence, send a probe. A request fails after 5 × 2 × 67 ms without an answer.
  keepAlive: 100,
  ackTimeout: 14,
  retryCount: 4,
  // A request to connect is repeated 3 times, every 0.13 s, instead of 15 times, every 4.6 s.
  timing: { responseTimeout: 14, packetLifetime: 13, maxRetries: 3 },
};

/** Tries until it has a connection. */
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
  server.kill('SIGKILL'); // The server cannot say goodbye.
  await ended;
  if (round === 1) {
    // This side only waits: `keepAlive` notices that the server is gone.
    await connection.receive().catch((error) => console.log(`gone: ${error.attribute}`));
    server = start();
  }
  await connection.close();
}
