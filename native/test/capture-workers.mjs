// Captures in workers that are terminated, exit, or close theirs in the middle of it; captures that nobody closes.
// Run by capture.test.ts; prints the descriptors that are left over.
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import { Capture, layout } from '../index.js';

const descriptors = () => readdirSync('/proc/self/fd').length;

async function main() {
  const socket = createSocket('udp4').bind(0);
  await once(socket, 'listening');
  const sending = setInterval(() => socket.send(new Uint8Array(100), 4791, '127.0.0.1'), 1);
  let before = 0;
  for (const how of ['close', 'terminate', 'exit', 'close', 'terminate', 'exit', 'close']) {
    const worker = new Worker(new URL(import.meta.url));
    await once(worker, 'message');
    const gone = once(worker, 'exit');
    if (how === 'terminate') worker.terminate();
    else worker.postMessage(how);
    await gone;
    // Node itself keeps some that the first worker needed.
    before ||= descriptors();
  }
  for (let i = 0; i < 30; i++) new Capture({ interface: 'lo', buffer: 1 << 20 });
  for (let i = 0; i < 10 && descriptors() > before; i++) {
    globalThis.gc();
    await sleep(20);
  }
  console.log(descriptors() - before);
  clearInterval(sending);
  socket.close();
  // The process ends while this one is started.
  new Capture({ interface: 'lo', onWake() {} }).start();
  process.exit(0);
}

function work() {
  const slab = new Uint8Array(1 << 20);
  const slots = new Uint32Array(100 * layout.CAPTURED_SLOT_WORDS);
  const capture = new Capture({
    interface: 'lo',
    onWake: () => {
      const count = capture.read(slab, slots);
      if (count > 0) parentPort.postMessage(count);
    },
  });
  capture.start();
  parentPort.on('message', (how) => {
    if (how === 'exit') process.exit(0);
    capture.close();
    parentPort.close();
  });
}

if (isMainThread) await main();
else work();
