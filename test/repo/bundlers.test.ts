/**
 * A program that holds node-roce, made by each bundler of docs/guide/deployment.md, and run where the package is not: without the files that
 * the page names it fails with a sentence that names them, with them it works. Needs the registry for the bundlers.
 */
import { execFile } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildModule } from '../../native/build-id.mjs';
// @ts-expect-error: plain JavaScript
import { assemble } from '../../scripts/release/assemble.mjs';
// @ts-expect-error: plain JavaScript
import { PRODUCTS } from '../../scripts/release/products.mjs';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const place = mkdtempSync(join(tmpdir(), 'roce-bundlers-'));
const installed = join(place, 'node_modules/node-roce');
const elsewhere = join(place, 'elsewhere');
afterAll(() => rmSync(place, { recursive: true }));

const PACKAGES = [
  ...['esbuild@0.28', 'rollup@4', 'rolldown@1', 'vite@7', 'webpack@5', 'webpack-cli@6', '@vercel/ncc@0.38'],
  ...[
    '@rollup/plugin-node-resolve@16',
    '@rollup/plugin-commonjs@29',
    'postject@1.0.0-alpha.6',
    'fzstd@0.1.1',
  ],
];

const PROGRAM = `import { openDevice } from 'node-roce';
import { analyzeCapture } from 'node-roce/capture/node';
const [link, engine] = process.argv.slice(2);
openDevice({ address: '127.84.${process.pid & 0xff}.1', link, engine }).then(async (device) => {
  console.log('opened', typeof analyzeCapture, (await device.query()).gids.length);
  await device.close();
}).catch((error) => console.log(error.code, error.message));
`;

const WEBPACK = `export default {
  mode: 'development', devtool: false, target: 'node20', entry: './program.mjs',
  experiments: { outputModule: true },
  output: { path: process.cwd() + '/webpack', filename: 'program.mjs', module: true, chunkFormat: 'module' },
};`;
const VITE = `export default { ssr: { noExternal: true }, build: { ssr: 'program.mjs', outDir: 'vite' } };`;
const FUSE = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2';

/** Name, commands of node_modules/.bin, how the program is started, and the folder in which it looks for files. */
const BUNDLERS: [name: string, commands: string[], start: string[], folder: string][] = [
  [
    'esbuild',
    [
      'esbuild program.mjs --bundle --platform=node --format=esm --outfile=esbuild/program.mjs --log-level=error',
    ],
    ['node', 'esbuild/program.mjs'],
    'esbuild',
  ],
  [
    'rollup',
    ['rollup program.mjs -f es -d rollup -p node-resolve -p commonjs --silent'],
    ['node', 'rollup/program.js'],
    'rollup',
  ],
  [
    'rolldown',
    ['rolldown program.mjs --platform node -f esm -d rolldown'],
    ['node', 'rolldown/program.js'],
    'rolldown',
  ],
  ['vite SSR, noExternal', ['vite build --logLevel error'], ['node', 'vite/program.js'], 'vite/assets'],
  ['webpack', ['webpack'], ['node', 'webpack/program.mjs'], 'webpack'],
  ['ncc', ['ncc build program.mjs -o ncc -q'], ['node', 'ncc/index.mjs'], 'ncc'],
  [
    'single executable of Node',
    [
      'esbuild program.mjs --bundle --platform=node --format=cjs --outfile=sea/program.cjs --log-level=error',
      'node --experimental-sea-config sea.json',
      `postject sea/program NODE_SEA_BLOB sea/sea.blob --sentinel-fuse ${FUSE}`,
    ],
    ['sea/program'],
    'sea',
  ],
];

const program = (name: string) =>
  name === 'node' ? process.execPath : join(place, 'node_modules/.bin', name);

describe('a bundle of', { tags: ['slow'], timeout: 1_800_000 }, () => {
  beforeAll(async () => {
    writeFileSync(join(place, 'package.json'), '{ "name": "user", "private": true, "type": "module" }');
    const args = ['install', '--no-audit', '--no-fund', '--ignore-scripts', ...PACKAGES];
    await run('npm', args, { cwd: place });
    const [product] = PRODUCTS;
    assemble(root, product, join(root, 'native'), installed);
    const native = join(installed, 'lib/dgram-native');
    writeFileSync(join(native, 'build.js'), buildModule());
    const prebuilds = join(native, `prebuilds/linux-${process.arch}`);
    mkdirSync(prebuilds, { recursive: true });
    const addon = join(root, 'native/build/Release/dgram_native.node');
    copyFileSync(addon, join(prebuilds, 'dgram_native.napi.glibc.node'));
    writeFileSync(join(place, 'program.mjs'), PROGRAM);
    writeFileSync(join(place, 'webpack.config.mjs'), WEBPACK);
    writeFileSync(join(place, 'vite.config.mjs'), VITE);
    const sea = { main: 'sea/program.cjs', output: 'sea/sea.blob', disableExperimentalSEAWarning: true };
    writeFileSync(join(place, 'sea.json'), JSON.stringify(sea));
    mkdirSync(join(place, 'sea'));
    copyFileSync(process.execPath, join(place, 'sea/program'));
  }, 1_800_000); // It downloads the bundlers.

  test.each(BUNDLERS)('%s', async (_name, commands, start, folder) => {
    for (const command of commands) {
      const [name = '', ...args] = command.split(' ');
      await run(program(name), args, { cwd: place, maxBuffer: 2 ** 26 });
    }
    // As on another machine.
    renameSync(installed, elsewhere);
    try {
      const [first = '', ...rest] = start;
      const file = first === 'node' ? process.execPath : join(place, first);
      const opened = async (link: string, engine: string) =>
        (await run(file, [...rest, link, engine], { cwd: place })).stdout;
      expect(await opened('udp', 'inline')).toMatch(
        /^ERR_ROCE_NO_ADDON .*copy the folder "prebuilds" of node-roce to /,
      );
      expect(await opened('dgram', 'worker')).toMatch(
        /^ERR_ROCE_ENGINE .*bundle node-roce\/worker as worker\.js/,
      );
      cpSync(join(elsewhere, 'lib/dgram-native/prebuilds'), join(place, folder, 'prebuilds'), {
        recursive: true,
      });
      expect(await opened('udp', 'inline')).toBe('opened function 1\n');
    } finally {
      renameSync(elsewhere, installed);
    }
  });

  test('vite SSR, which leaves packages out, works as it is', async () => {
    const args = [
      'build',
      '--config',
      'none.mjs',
      '--ssr',
      'program.mjs',
      '--outDir',
      'ssr',
      '--logLevel',
      'error',
    ];
    writeFileSync(join(place, 'none.mjs'), 'export default {};');
    await run(program('vite'), args, { cwd: place });
    const { stdout } = await run(process.execPath, ['ssr/program.js', 'udp', 'worker'], { cwd: place });
    expect(stdout).toBe('opened function 1\n');
  });

  test('deployment.md lists them', () => {
    const page = readFileSync(join(root, 'docs/guide/deployment.md'), 'utf8');
    const rows = [...page.matchAll(/^\| ([^|]+) \| works \|/gm)].map(([, name]) => name);
    expect(rows).toEqual(BUNDLERS.map(([name]) => name));
  });
});
