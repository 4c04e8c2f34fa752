/** Memory that another thread writes while it is sent: whatever goes out has a right ICRC. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { ownPort } from '../../packages/link/testing/loopback.ts';
import { features, setCrcImplementation } from '../index.js';
import { Station } from './support.ts';

test.each(['vpclmul', 'pclmul', 'arm', 'table'] as const)('a snapshot per packet, with %s', async (name) => {
  const before = features().crc;
  try {
    setCrcImplementation(name);
  } catch {
    return; // not on this processor
  }
  const buffer = new SharedArrayBuffer(16_384);
  const control = new SharedArrayBuffer(8);
  const worker = new Worker(
    `const { workerData: { buffer, control } } = require('node:worker_threads');
     const words = new Uint32Array(buffer), flags = new Int32Array(control);
     for (let x = 1; !Atomics.load(flags, 0); ) {
       for (let i = 0; i < words.length; i++) words[i] = x = Math.imul(x, 1664525) + 1013904223;
       Atomics.add(flags, 1, 1);
     }`,
    { eval: true, workerData: { buffer, control } },
  );
  const flags = new Int32Array(control);
  const from = new Station('127.0.0.1', ownPort);
  const to = new Station('127.0.0.2', ownPort);
  try {
    await once(worker, 'online');
    while (Atomics.load(flags, 1) === 0) await new Promise(setImmediate);
    const peer = from.peer('127.0.0.2', ownPort);
    const region = from.regions.add(new Uint8Array(buffer));
    const sizes = [4096, 1024, 333, 4095, 64, 257, 7];
    let bad = 0;
    let heard = 0;
    for (let round = 0; round < 150; round++) {
      const size = sizes[round % sizes.length];
      for (let i = 0; i < 60; i++) from.add({ peer, fragments: [[region, i * 11, size]] });
      from.flush();
      for (const packet of to.receive()) {
        heard++;
        if (packet.verdict !== 0) bad++;
      }
    }
    expect(bad).toBe(0);
    expect(heard).toBe(150 * 60);
    expect(Atomics.load(flags, 1)).toBeGreaterThan(10); // it was written meanwhile
  } finally {
    setCrcImplementation(before);
    Atomics.store(flags, 0, 1);
    await worker.terminate();
    from.close();
    to.close();
  }
});

test('the same memory declared as unshared does get caught: the test above can fail', async () => {
  const buffer = new SharedArrayBuffer(16_384);
  const control = new SharedArrayBuffer(8);
  const worker = new Worker(
    `const { workerData: { buffer, control } } = require('node:worker_threads');
     const words = new Uint32Array(buffer), flags = new Int32Array(control);
     for (let x = 1; !Atomics.load(flags, 0); ) for (let i = 0; i < words.length; i++) words[i] = x = Math.imul(x, 1664525) + 1013904223;`,
    { eval: true, workerData: { buffer, control } },
  );
  const from = new Station('127.0.0.1', ownPort);
  const to = new Station('127.0.0.2', ownPort);
  try {
    await once(worker, 'online');
    const peer = from.peer('127.0.0.2', ownPort);
    const region = from.regions.add(new Uint8Array(buffer));
    from.regions.shared[region] = 0;
    let bad = 0;
    // The other thread has to store between two reads of one packet: on a busy machine that takes its time.
    for (let round = 0; round < 300_000 && bad === 0; round++) {
      for (let i = 0; i < 15; i++) from.add({ peer, fragments: [[region, 0, 4096]] });
      from.flush();
      bad += to.receive().filter((packet) => packet.verdict !== 0).length;
    }
    expect(bad).toBeGreaterThan(0);
  } finally {
    Atomics.store(new Int32Array(control), 0, 1);
    await worker.terminate();
    from.close();
    to.close();
  }
});
