/** Life and death of environments: workers, exits, loops that end. Each in a process of its own. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { ownPort } from '../../packages/link/testing/loopback.ts';
import { DEADLINE_MS } from './support.ts';

const run = promisify(execFile);
const addon = new URL('../index.js', import.meta.url).href;

/** Runs a module in a new process; rejects when that ends by a signal or with a status. */
async function inProcess(code: string): Promise<string> {
  const prelude = `
    import { Port, Socket, layout } from ${JSON.stringify(addon)};
    import { Worker } from 'node:worker_threads';
    const gid = (last) => Uint8Array.of(0,0,0,0,0,0,0,0,0,0,255,255,127,0,0,last);
    const port = ${ownPort};
    const start = (code) => new Worker(code, { eval: true, execArgv: [] });
  `;
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', prelude + code], {
    timeout: DEADLINE_MS,
  });
  return stdout.trim();
}

/** A worker that receives for ever, polled and woken. */
const receiving = `
  import(${JSON.stringify(addon)}).then(({ Port, Socket, layout }) => {
    const { parentPort } = require('node:worker_threads');
    const socket = new Socket({ family: 4, address: '127.0.0.2', port: ${ownPort}, gro: true, reusePort: true });
    const slab = new Uint8Array(1 << 20), slots = new Uint32Array(1024 * 12), sources = new Uint8Array(1024 * 16);
    let total = 0;
    const drain = () => { let n; while ((n = port.receive(slab, slots, sources, 1024)) > 0) { total += n; parentPort.postMessage(total); } };
    const port = new Port({ onWake: drain });
    port.addLocal(socket);
    port.start();
    port.setDeadline(100);
    const poll = () => { drain(); setImmediate(poll); };
    poll();
    parentPort.postMessage('ready');
  });
`;

/** Sends packets to 127.0.0.2 as long as \`busy\` is set. */
const sending = `
  const socket = new Socket({ family: 4, address: '127.0.0.1', port });
  const out = new Port();
  out.addLocal(socket);
  const peer = out.addPeer({ address: gid(2), local: 0, port });
  const n = 60, slots = new Uint32Array(n * layout.TX_SLOT_WORDS), headers = new Uint8Array(n * 64), fragments = new Uint32Array(n * 4);
  const memory = new Uint8Array(4096);
  for (let i = 0; i < n; i++) {
    slots.set([i * 64, 12, i, 1, 1024, 0, peer, 0, 0xc001], i * layout.TX_SLOT_WORDS);
    fragments.set([0, 0, 0, 1024], i * 4);
  }
  let busy = true;
  const pump = () => { if (!busy) return; out.send(slots, headers, fragments, 0, n, [memory], new Uint8Array(1)); setImmediate(pump); };
  pump();
`;

describe('worker threads', () => {
  test.each(['terminate', 'exit'])('%s in the middle of receiving, 10 times', async (how) => {
    const ends =
      how === 'exit' ? "require('node:worker_threads').parentPort.on('message', () => process.exit(0));" : '';
    const end = how === 'exit' ? 'worker.postMessage(0); await exited;' : 'await worker.terminate();';
    const output = await inProcess(`
      ${sending}
      let heard = 0;
      for (let i = 0; i < 10; i++) {
        const worker = start(${JSON.stringify(ends + receiving)});
        const exited = new Promise((done) => worker.once('exit', done));
        await new Promise((done, fail) => {
          worker.on('message', (total) => { if (total !== 'ready' && total > 200) done(); });
          worker.on('error', fail);
        });
        heard++;
        ${end}
      }
      busy = false;
      out.close();
      socket.close();
      console.log('heard', heard);
    `);
    expect(output).toBe('heard 10');
  });

  test('several at once, each with its own port', async () => {
    const output = await inProcess(`
      ${sending}
      const workers = Array.from({ length: 3 }, () => start(${JSON.stringify(receiving)}));
      await Promise.all(workers.map((worker) => new Promise((done) => worker.once('message', done))));
      await Promise.race(workers.map((worker) => new Promise((done) => worker.once('message', done))));
      await Promise.all(workers.map((worker) => worker.terminate()));
      busy = false;
      out.close();
      console.log('done');
    `);
    expect(output).toBe('done');
  });

  test('process.exit of the main thread while a worker receives', async () => {
    await inProcess(`
      ${sending}
      const worker = start(${JSON.stringify(receiving)});
      worker.on('message', (total) => { if (total > 200) process.exit(0); });
    `);
  });

  test('a worker with an open port that simply ends', async () => {
    const output = await inProcess(`
      const code = ${JSON.stringify(`import(${JSON.stringify(addon)}).then(({ Port }) => { const port = new Port({ onWake() {} }); port.start(); port.unref(); });`)};
      for (let i = 0; i < 10; i++) await new Promise((done) => start(code).once('exit', done));
      console.log('done');
    `);
    expect(output).toBe('done');
  });
});

describe('one process', () => {
  test('an open port that is not started does not keep it alive', async () => {
    expect(await inProcess(`globalThis.port = new Port({ onWake() {} }); console.log('end');`)).toBe('end');
  });

  test('a started one does until it is stopped, closed or unreferenced', async () => {
    for (const end of ['port1.stop()', 'port1.close()', 'port1.unref()']) {
      const output = await inProcess(`
        const port1 = new Port({ onWake() { console.log('woken'); ${end}; } });
        port1.start();
        port1.setDeadline(20_000);
      `);
      expect(output).toBe('woken');
    }
  });

  test('an unreferenced one can be referenced again', async () => {
    const output = await inProcess(`
      const port1 = new Port({ onWake() { console.log('woken'); port1.close(); } });
      port1.start();
      port1.unref();
      port1.ref();
      port1.setDeadline(20_000);
    `);
    expect(output).toBe('woken');
  });

  test('forgotten ports and sockets are collected, with their descriptors', async () => {
    const output = await inProcess(`
      import { readdirSync } from 'node:fs';
      import { setFlagsFromString } from 'node:v8';
      import { runInNewContext } from 'node:vm';
      setFlagsFromString('--expose-gc');
      const gc = runInNewContext('gc');
      const descriptors = () => readdirSync('/proc/self/fd').length;
      const before = descriptors();
      for (let i = 0; i < 50; i++) {
        const forgotten = new Port({ onWake() {} });
        forgotten.addLocal(new Socket({ family: 4, address: '127.0.0.1', port: 0 }));
        forgotten.start();
        forgotten.stop();
      }
      for (let i = 0; i < 1000 && descriptors() > before + 5; i++) { gc(); await new Promise((done) => setTimeout(done, 10)); }
      console.log(descriptors() <= before + 5 ? 'collected' : descriptors() - before);
    `);
    expect(output).toBe('collected');
  });

  test('a started port is not collected', async () => {
    const output = await inProcess(`
      import { setFlagsFromString } from 'node:v8';
      import { runInNewContext } from 'node:vm';
      setFlagsFromString('--expose-gc');
      const gc = runInNewContext('gc');
      (() => {
        const port1 = new Port({ onWake() { console.log('woken'); this.close(); } });
        port1.start();
        port1.setDeadline(100_000);
      })();
      for (let i = 0; i < 5; i++) { gc(); await new Promise((done) => setTimeout(done, 5)); }
    `);
    expect(output).toBe('woken');
  });
});
