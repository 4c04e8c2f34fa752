/** The packages as they would be published: their contents, their descriptions, the programs of their pages. */
// @module-tag slow
// @module-tag gate
import { execFile } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createRequire, isBuiltin } from 'node:module';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { assemble } from '../../scripts/release/assemble.mjs';
// @ts-expect-error: plain JavaScript
import { JOINED } from '../../scripts/release/join.mjs';
// @ts-expect-error: plain JavaScript
import { PRODUCTS } from '../../scripts/release/products.mjs';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const ADDRESSES = `127.77.${process.pid & 0xff}`;

// Programs in it import the packages of the repository.
const scratch = mkdtempSync(join(root, '.programs-'));
afterAll(() => rmSync(scratch, { recursive: true }));

/** The packages that users install, without addons, by name. */
const assembled = new Map<string, string>(
  PRODUCTS.map((product: Product, i: number) => [product.name, join(scratch, `${i}`)]),
);

interface Product {
  name: string;
  exports: Record<string, string>;
  folders: string[];
}

const functionsOf = (path: string) =>
  [...readFileSync(path, 'utf8').matchAll(/^(?:export )?(?:async )?function\*? (\w+)/gm)].map(
    ([, name = '']) => name,
  );
/** Functions of the sources, by name. */
const written = new Set(
  readdirSync(join(root, 'packages')).flatMap((name) =>
    readdirSync(join(root, 'packages', name, 'src'), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.ts'))
      .flatMap((path) => functionsOf(join(root, 'packages', name, 'src', path))),
  ),
);

describe.each(PRODUCTS as Product[])('$name', (product) => {
  const place = assembled.get(product.name)!;
  const manifest = () => JSON.parse(readFileSync(join(place, 'package.json'), 'utf8'));
  const files = () => readdirSync(place, { recursive: true, encoding: 'utf8' });
  beforeAll(() => assemble(root, product, join(root, 'native'), place));

  test('has what a registry shows', () => {
    expect(manifest()).toMatchObject({ author: 'The node-roce authors', license: 'MIT', type: 'module' });
    expect(manifest().description).toMatch(/\w+ \w+/);
    expect(manifest().keywords.length).toBeGreaterThan(2);
    expect(readFileSync(join(place, 'README.md'), 'utf8')).toContain(`# ${product.name}\n`);
  });

  test('holds its code and its texts, no tests, no state of the build and no maps', () => {
    const targets = Object.values<object | string>(manifest().exports).flatMap((entry) =>
      typeof entry === 'string' ? entry : Object.values(entry),
    );
    for (const target of [...targets, ...Object.values<string>(manifest().bin ?? {})])
      expect(existsSync(join(place, target)), target).toBe(true);
    expect(files()).toEqual(expect.arrayContaining(['README.md', 'LICENSE', ...product.folders]));
    expect(files().filter((path) => /\.test\.|tsbuildinfo|\.[jt]s\.map$|(^|\/)testing\//.test(path))).toEqual(
      [],
    );
  });

  test('imports no package of the workspace by name, and all others are dependencies', () => {
    const { dependencies, peerDependencies = {} } = manifest();
    const known = [...Object.keys({ ...dependencies, ...peerDependencies }), 'node'];
    for (const path of files().filter((file) => /^lib\/.*\.(js|d\.ts)$/.test(file))) {
      if (/report\/page\//.test(path)) continue; // A bundle.
      const text = readFileSync(join(place, path), 'utf8');
      const bare = [...text.matchAll(/(?:\bfrom|\bimport)[ (]+["']([^."'][^"']*)["']/g)].map(
        ([, name]) => name,
      );
      const names = bare.map((name) => (isBuiltin(name) ? 'node' : name).match(/^(@[^/]+\/)?[^/]+/)![0]);
      expect(
        names.filter((name) => !known.includes(name)),
        path,
      ).toEqual([]);
    }
  });

  test('functions in joined files have the names of the sources, as stack traces show them', () => {
    const joined = files().filter((path) =>
      JOINED.some((name: string) => path.startsWith(name.replace('@node-roce', 'lib'))),
    );
    const names = joined
      .filter((path) => path.endsWith('.js'))
      .flatMap((path) => functionsOf(join(place, path)));
    expect(names.length).toBeGreaterThan(product.name === '@node-roce/dgram-native' ? -1 : 100);
    // Two functions of one package have one name: rename the one that users do not call.
    expect(names.filter((name) => !written.has(name))).toEqual([]);
  });

  test('its page has no dead link', () => {
    const page = readFileSync(join(place, 'README.md'), 'utf8');
    const links = [...page.matchAll(/\]\(([^)#\s]+)[^)]*\)/g)].map(([, target]) => target);
    expect(links.filter((link) => !/^[a-z]+:/.test(link) && !existsSync(join(place, link)))).toEqual([]);
  });
});

test('programs of this repository import what users import', () => {
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const places = Object.entries<Record<string, string> | string>(exports).map(([path, entry]) => {
    const target = typeof entry === 'string' ? entry : entry.default;
    return [path, target.replace(/^\.\/packages/, './lib')];
  });
  const product = JSON.parse(readFileSync(join(assembled.get('node-roce')!, 'package.json'), 'utf8')).exports;
  const installed = Object.entries<Record<string, string> | string>(product).map(([path, entry]) => [
    path,
    typeof entry === 'string' ? entry : entry.default,
  ]);
  expect(installed.filter(([path]) => path !== './package.json')).toEqual(places);
});

/** The first program of a page, at addresses of this process. */
function programOf(page: string): string {
  const code = /```js\n([\s\S]*?)```/.exec(readFileSync(join(root, page, 'README.md'), 'utf8'))![1];
  return code.replaceAll('127.0.0', ADDRESSES);
}

test.each([
  ['.', 'hello'],
  ['packages/verbs-api', 'hello'],
  ['packages/rdmacm', 'hello'],
  ['packages/rsocket', 'hello'],
  ['packages/ibverbs', 'PORT_ACTIVE'],
  ['packages/capture', 'warning retransmissions'],
  ['packages/link', ''],
  ['packages/sim', ''],
  ['packages/conform', 'pass DUP-12'],
  ['packages/device', '.sock { programs: 0, objects: 0 }'],
  ['packages/wire', 'RDMA Write Only'],
])('the program of the page of %s runs', { tags: ['slow', 'gate'] }, async (page, output) => {
  const capture = join(root, 'test/fixtures/captures/loss5_both_rc_pingpong.pcap');
  copyFileSync(capture, join(scratch, 'trace.pcapng.gz'));
  const path = join(scratch, 'program.mjs');
  writeFileSync(path, programOf(page));
  const { stdout } = await run(process.execPath, [path], { cwd: scratch });
  expect(stdout).toContain(output);
});

test('a bundle that leaves the packages external runs the engine in a worker', async () => {
  const require = createRequire(join(root, 'packages/capture/package.json'));
  const { build } = require('esbuild');
  const code = `import { openDevice } from '@node-roce/verbs-api';
    const device = await openDevice({ address: '${ADDRESSES}.9', engine: 'worker' });
    console.log((await device.query()).gids.length);
    await device.close();`;
  const outfile = join(scratch, 'bundle.mjs');
  const stdin = { contents: code, resolveDir: scratch };
  await build({ stdin, outfile, bundle: true, platform: 'node', format: 'esm', packages: 'external' });
  expect((await run(process.execPath, [outfile], { cwd: scratch })).stdout).toBe('1\n');
});

test('a bundle that holds the packages rejects with a hint', async () => {
  const require = createRequire(join(root, 'packages/capture/package.json'));
  const { build } = require('esbuild');
  const code = `import { openDevice } from '@node-roce/verbs-api';
    await openDevice({ address: '${ADDRESSES}.9', engine: 'worker', link: 'dgram' }).catch((e) => console.log(e.code, e.message));`;
  const outfile = join(scratch, 'whole.mjs');
  const stdin = { contents: code, resolveDir: scratch };
  const banner = {
    js: "import { createRequire as c } from 'node:module'; const require = c(import.meta.url);",
  };
  await build({ stdin, outfile, bundle: true, platform: 'node', format: 'esm', banner, logLevel: 'silent' });
  const { stdout } = await run(process.execPath, [outfile], { cwd: scratch });
  expect(stdout).toMatch(/^ERR_ROCE_ENGINE .*worker\.js.*bundle/);
});
