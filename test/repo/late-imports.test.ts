/** `import 'node-roce'` loads no module that few programs need: what reads and writes captures, the kinds of links. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');

/** The modules that a program has loaded, by their addresses. */
async function loadedBy(program: string): Promise<string[]> {
  const hook = `export async function load(url, context, next) {
    console.log('loaded', url);
    return next(url, context);
  }`;
  const register = `import { register } from 'node:module';
    register(${JSON.stringify(`data:text/javascript,${encodeURIComponent(hook)}`)});`;
  const args = ['--input-type=module', '-e', `${register} ${program}`];
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root });
  return stdout.split('\n').flatMap((line) => (line.startsWith('loaded ') ? line.slice(7) : []));
}

const LATE = /\/packages\/pcap\/|\/fzstd\/|\/link\/dist\/(dgram|udp|xdp)\.js/;

test.each(['node-roce', 'node-roce/rdmacm'])('%s loads neither captures nor links', async (entry) => {
  const modules = await loadedBy(`await import('${entry}');`);
  expect(modules.filter((url) => url.includes('/packages/transport/')).length).toBeGreaterThan(0);
  expect(modules.filter((url) => LATE.test(url))).toEqual([]);
});

test('a device that traces loads it', async () => {
  const modules = await loadedBy(
    `const { openDevice } = await import('node-roce');
    const device = await openDevice({ address: '127.0.0.1', link: 'dgram', trace: '/dev/null' });
    await device.close();`,
  );
  expect(modules.filter((url) => url.includes('/packages/pcap/')).length).toBeGreaterThan(0);
});
