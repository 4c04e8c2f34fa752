/** The watcher of an interface; what it hears is tested where interfaces can be changed: test/sockets/port-events.test.ts. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { InterfaceWatcher } from '../index.js';
import { DEADLINE_MS } from './support.ts';

const onWake = () => {};

test.each<[string, unknown, string]>([
  ['no options', undefined, 'ERR_INVALID_ARG_TYPE'],
  ['no name', { onWake }, 'ERR_INVALID_ARG_TYPE'],
  ['an empty name', { interface: '', onWake }, 'ERR_OUT_OF_RANGE'],
  ['a name that is too long', { interface: 'x'.repeat(16), onWake }, 'ERR_OUT_OF_RANGE'],
  ['nobody to call', { interface: 'lo' }, 'ERR_INVALID_ARG_TYPE'],
  ['an interface that is not there', { interface: 'no-such-nic', onWake }, 'ENODEV'],
])('%s', (_what, options, code) => {
  expect(() => new InterfaceWatcher(options as never)).toThrow(expect.objectContaining({ code }));
});

test('the loopback interface does not change; a closed watcher reports nothing', () => {
  const watcher = new InterfaceWatcher({ interface: 'lo', onWake });
  expect(watcher.read()).toEqual([]);
  watcher.close();
  watcher.close();
  expect(watcher.read()).toEqual([]);
});

test('it keeps no process alive, and many of them leave nothing behind', () => {
  const script = `
    import { readdirSync } from 'node:fs';
    import { InterfaceWatcher } from ${JSON.stringify(new URL('../index.js', import.meta.url).href)};
    const make = () => new InterfaceWatcher({ interface: 'lo', onWake() {} });
    make();
    const open = () => readdirSync('/proc/self/fd').length;
    const before = open();
    for (let i = 0; i < 1000; i++) make().close();
    setImmediate(() => console.log(open() - before));
  `;
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
    timeout: DEADLINE_MS,
  });
  expect(output.trim()).toBe('0');
});

test('a worker ends with its watcher open', async () => {
  const worker = new Worker(
    `const { parentPort } = require('node:worker_threads');
     import(${JSON.stringify(new URL('../index.js', import.meta.url).href)}).then(({ InterfaceWatcher }) => {
       new InterfaceWatcher({ interface: 'lo', onWake() {} });
       parentPort.postMessage('open');
     });`,
    { eval: true },
  );
  const [[message], [code]] = await Promise.all([once(worker, 'message'), once(worker, 'exit')]);
  expect([message, code]).toEqual(['open', 0]);
});
