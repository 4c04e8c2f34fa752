/** The packages as they would be published: their contents, their descriptions, the programs of their pages. */
import { execFile } from 'node:child_process';
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');
const folders = [...readdirSync(join(root, 'packages')).map((name) => `packages/${name}`), 'native'];
const ADDRESSES = `127.77.${process.pid & 0xff}`;

mkdirSync(join(root, 'node_modules/.cache'), { recursive: true });
const scratch = mkdtempSync(join(root, 'node_modules/.cache/readme-'));
afterAll(() => rmSync(scratch, { recursive: true }));

let packed: Promise<Map<string, string[]>> | undefined;
/** The files that npm would pack, by the name of the package: of all in one call, since each call of npm costs a second. */
function listPacked(): Promise<Map<string, string[]>> {
  packed ??= callNpm();
  return packed;
}

async function callNpm(): Promise<Map<string, string[]>> {
  const args = [
    'pack',
    '--dry-run',
    '--json',
    '--ignore-scripts',
    ...folders.map((folder) => join(root, folder)),
  ];
  const { stdout } = await run('npm', args, { cwd: scratch, maxBuffer: 2 ** 24 });
  const listed = JSON.parse(stdout) as { name: string; files: { path: string }[] }[];
  return new Map(listed.map(({ name, files }) => [name, files.map(({ path }) => path)]));
}

describe.each(folders)('%s', (folder) => {
  const manifest = JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8'));

  test('has what a registry shows', () => {
    expect(manifest.description).toMatch(/\w+ \w+/);
    expect(manifest.keywords.length).toBeGreaterThan(2);
    expect(manifest).toMatchObject({
      author: 'The node-roce authors',
      license: 'MIT',
      publishConfig: { access: 'public' },
      scripts: { prepack: expect.stringMatching(/^node (\.\.\/)+scripts\/only-pnpm-packs\.mjs$/) },
    });
    expect(readFileSync(join(root, folder, 'README.md'), 'utf8')).toMatch(`# ${manifest.name}\n`);
  });

  test('packs its page and its code, no tests and no state of the build', {
    tags: ['slow', 'gate'],
  }, async () => {
    const paths = (await listPacked()).get(manifest.name)!;
    expect(paths).toContain('README.md');
    const { default: entry, types } = manifest.exports?.['.'] ?? {
      default: './bin/roce.js',
      types: undefined,
    };
    for (const path of [entry, types ?? entry]) expect(paths).toContain(path.replace('./', ''));
    expect(paths.filter((path) => /\.test\.|tsbuildinfo|^testing\//.test(path))).toEqual([]);
  });
});

test.each(['packages/wire', 'native'])('npm pack of %s fails, and names what packs it', async (folder) => {
  const packed = run('npm', ['pack', '--dry-run'], { cwd: join(root, folder) });
  await expect(packed).rejects.toMatchObject({ stderr: expect.stringContaining('npx --yes pnpm@12 pack') });
});

/** The first program of a page, at addresses of this process. */
function programOf(page: string): string {
  const code = /```js\n([\s\S]*?)```/.exec(readFileSync(join(root, page, 'README.md'), 'utf8'))![1];
  return code.replaceAll('127.0.0', ADDRESSES);
}

test.each([
  ['.', 'SUCCESS written from afar'],
  ['packages/verbs-api', 'hello'],
  ['packages/rdmacm', 'hello'],
  ['packages/ibverbs', 'PORT_ACTIVE'],
  ['packages/capture', 'warning retransmissions'],
  ['packages/link', ''],
  ['packages/wire', 'RDMA Write Only'],
])('the program of the page of %s runs', async (page, output) => {
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
  expect(stdout).toMatch(/^ERR_ROCE_ENGINE .*worker\.js.*bundler/);
});
