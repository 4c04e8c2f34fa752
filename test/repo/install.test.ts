/**
 * npm and pnpm install node-roce by its name, in a fresh folder, from a registry on loopback, and the program of README.md runs. Without a network:
 * packages of others come from the workspace. The other clients, and what is packed for a release: installed.test.ts.
 */
// @module-tag slow
// @module-tag gate
import { execFile } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { assemble } from '../../scripts/release/assemble.mjs';
// @ts-expect-error: plain JavaScript
import { PRODUCTS } from '../../scripts/release/products.mjs';
import { serveRegistry } from './registry.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const scratch = mkdtempSync(join(tmpdir(), 'roce-install-'));
const [tarballs, built] = ['tarballs', 'built'].map((name) => join(scratch, name)) as [string, string];
/** Packages of others that node-roce needs, as the workspace has them. */
const OTHERS: Record<string, string> = {
  fzstd: 'packages/pcap/node_modules/fzstd',
  'node-addon-api': 'native/node_modules/node-addon-api',
};
let registry: Server;

beforeAll(async () => {
  mkdirSync(tarballs);
  const product = PRODUCTS.find(({ name }: { name: string }) => name === 'node-roce');
  await assemble(root, product, join(root, 'native'), built);
  const addon = join(root, 'native/build/Release/dgram_native.node');
  if (existsSync(addon)) {
    const prebuilds = join(built, 'lib/dgram-native/prebuilds', `linux-${process.arch}`);
    mkdirSync(prebuilds, { recursive: true });
    copyFileSync(addon, join(prebuilds, 'dgram_native.napi.glibc.node'));
  }
  const { dependencies } = JSON.parse(readFileSync(join(built, 'package.json'), 'utf8'));
  expect(Object.keys(dependencies).sort()).toEqual(Object.keys(OTHERS));
  for (const folder of [built, ...Object.values(OTHERS).map((path) => realpathSync(join(root, path)))])
    await run('npm', ['pack', '--ignore-scripts', '--pack-destination', tarballs, folder], { cwd: scratch });
  registry = await serveRegistry(tarballs);
});
afterAll(() => {
  registry?.close();
  rmSync(scratch, { recursive: true });
});

/** The program pnpm, from npm's cache: `npm run setup` has put it there. */
async function pnpm(): Promise<string> {
  const args = ['--offline', '--yes', '--package=pnpm@12', '--call', 'command -v pnpm'];
  return (await run('npx', args, { cwd: root })).stdout.trim();
}

const CLIENTS: [name: string, command: () => Promise<string>, args: string[]][] = [
  ['npm', async () => 'npm', ['install', '--no-audit', '--no-fund']],
  ['pnpm', pnpm, ['add', `--store-dir=${join(scratch, 'store')}`]],
];
test.each(CLIENTS)('%s installs it, and the program of README.md runs', async (client, command, args) => {
  const folder = join(scratch, client);
  mkdirSync(folder);
  writeFileSync(join(folder, 'package.json'), '{ "name": "user", "private": true, "type": "module" }');
  const { port } = registry.address() as AddressInfo;
  writeFileSync(join(folder, '.npmrc'), `registry=http://127.0.0.1:${port}/\n`);
  await run(await command(), [...args, 'node-roce'], { cwd: folder });
  const [, program = ''] = /```js\n([\s\S]*?)```/.exec(readFileSync(join(root, 'README.md'), 'utf8')) ?? [];
  writeFileSync(join(folder, 'program.mjs'), program);
  const { stdout, stderr } = await run(process.execPath, ['program.mjs'], { cwd: folder });
  expect([stdout, stderr]).toEqual(['hello\n', '']);
  // Nothing was compiled.
  expect(existsSync(join(folder, 'node_modules/node-roce/lib/dgram-native/build'))).toBe(false);
});
