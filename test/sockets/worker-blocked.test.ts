/** A program that blocks its thread, with the engine in a worker: its peers notice nothing. */
// @module-tag slow
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { openDevice } from '@node-roce/verbs-api';
import { expect, test } from 'vitest';

const MIB = 1024 * 1024;
const MESSAGES = 1024;
const BLOCKED_MS = 1000;
const port = 50_000 + (process.pid % 10_000);

test('answers a peer with timeout 14, retry 3 that moves 1 GiB while the program is blocked', async () => {
  const device = await openDevice({ address: '127.0.47.1', port, engine: 'worker' });
  const peer = fork(join(import.meta.dirname, 'blocked/peer.mjs'), ['127.0.47.2', String(port)], {
    serialization: 'advanced',
    execArgv: [],
  });
  try {
    const pd = await device.allocPd();
    const memory = new SharedArrayBuffer(MIB);
    const mr = await pd.registerMr(memory, { access: { remoteWrite: true } });
    const qp = await pd.createQp({ sendCq: await device.createCq(1) });
    const [data] = await once(peer, 'message');
    await qp.connect(data, { pathMtu: 4096 });
    const result = once(peer, 'message');
    peer.send({ data: qp.connectionData(), remote: mr.remote(), messages: MESSAGES });

    const last = new Int32Array(memory, MIB - 4);
    while (Atomics.load(last, 0) === 0) await new Promise(setImmediate);
    // Nobody notifies: this thread stands still for the whole time, again and again until all has come.
    let moved = 0;
    while (Atomics.load(last, 0) < MESSAGES) {
      const before = Atomics.load(last, 0);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, BLOCKED_MS);
      moved += Atomics.load(last, 0) - before;
      if (Atomics.load(last, 0) === before) break; // The peer has failed: its result has the reason.
    }
    expect((await result)[0]).toEqual({ failed: [], timeouts: 0 });
    expect(moved).toBeGreaterThan(0);
    expect(Atomics.load(last, 0)).toBe(MESSAGES);
  } finally {
    peer.kill();
    await device.close();
  }
});
