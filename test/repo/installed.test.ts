/**
 * The packages as users get them: packed by the release script, installed in an empty project outside of the checkout by npm, pnpm and yarn, with
 * the prebuilt addon, and without one. Needs the registry for the dependencies of others, and a compiler.
 */
// @module-tag slow
import { execFile, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import type { Server } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { problemAffectsResolutionKind } from '@arethetypeswrong/core/problems';
import { publint } from 'publint';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { filesOf, install, installedBytes, startLine, timesOf } from '../../bench/start.mjs';
import { buildId } from '../../native/build-id.mjs';
// @ts-expect-error: plain JavaScript
import { nodeDir } from '../../scripts/node-dir.mjs';
// @ts-expect-error: plain JavaScript
import { PRODUCTS } from '../../scripts/release/products.mjs';
import { serveRegistry } from './registry.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const place = mkdtempSync(join(tmpdir(), 'roce-installed-'));
const [tarballs, project, tools, musl] = ['tarballs', 'project', 'tools', 'musl'].map((name) =>
  join(place, name),
);
const target = `linux-${process.arch}`;
const native = join(project, 'node_modules/node-roce/lib/dgram-native');
const addon = join(native, 'prebuilds', target, 'dgram_native.napi.glibc.node');
const hasCompiler = ['g++', 'make', 'python3', 'objdump'].every(
  (program) => spawnSync(program, ['--version']).status === 0,
);
afterAll(() => rmSync(place, { recursive: true }));

const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));

const TARBALL = join(tarballs, `node-roce-${version}.tgz`);

/** Deadline of what downloads, ms: a busy machine takes minutes for it. */
const ONLINE = 1_800_000;

/** The versions of Node that a client of each package manager is tried on. */
const NODES = ['20', '22', '24', '26'];

const README = readFileSync(join(root, 'README.md'), 'utf8');
const [, PROGRAM = ''] = /```js\n([\s\S]*?)```/.exec(README) ?? [];
/** The commands of README.md that pack node-roce and install it, with the folder of this test and the architecture of this machine. */
const [PACK = '', INSTALL = ''] = ['node scripts/release/', 'npm install /tmp/'].map((beginning) => {
  const line = README.split('\n').find((text) => text.startsWith(beginning)) ?? '';
  const [command = ''] = line.replaceAll('/tmp/node-roce', tarballs).split('#');
  return command.trimEnd().replace(/ x64$/, ` ${process.arch}`);
});

/** Puts a program of the machine into the folder of a PATH. */
function link(program: string, folder: string): void {
  const { stdout } = spawnSync('sh', ['-c', `command -v ${program}`], { encoding: 'utf8' });
  if (!existsSync(join(folder, program))) symlinkSync(stdout.trim(), join(folder, program));
}

/** A program of the project. Its PATH has Node and nothing else. */
async function node(args: readonly string[], executable = process.execPath, variables: object = {}) {
  const env = { PATH: tools, HOME: place, npm_config_nodedir: nodeDir() ?? '', ...variables };
  return run(executable, args, { cwd: project, env });
}

/** examples/write.mjs, at addresses of this process. */
function program(options = ''): string {
  const code = readFileSync(join(root, 'examples/write.mjs'), 'utf8');
  const path = join(project, `program${options.length}.mjs`);
  const text = code
    .replaceAll('127.0.0', `127.78.${process.pid & 0xff}`)
    .replaceAll(/(address: '[^']+')/g, `$1${options}`);
  const maps = `\nconsole.log(process.report.getReport().sharedObjects.filter((path) => path.endsWith('.node')).join());\n`;
  writeFileSync(path, text + maps);
  return path;
}

/** One queue pair connected to itself, which writes into its own memory, by libibverbs' names. */
const WRITE = `
import * as v from 'node-roce/ibverbs';
const must = (result) => {
  if (result === null || result === undefined || (typeof result === 'number' && result !== 0)) throw v.lastError();
  return result;
};
const [device] = v.ibv_get_device_list();
const context = must(await v.ibv_open_device(device, { address: 'ADDRESS', link: 'udp' }));
const pd = must(await v.ibv_alloc_pd(context));
const memory = new TextEncoder().encode('from afar'.padEnd(64, '.'));
const access = v.IBV_ACCESS_LOCAL_WRITE | v.IBV_ACCESS_REMOTE_WRITE;
const mr = must(await v.ibv_reg_mr(pd, memory, memory.length, access));
const cq = must(await v.ibv_create_cq(context, 4, null, null, 0));
const cap = { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1 };
const qp = must(await v.ibv_create_qp(pd, { send_cq: cq, recv_cq: cq, cap, qp_type: v.IBV_QPT_RC }));
const dgid = {};
must(await v.ibv_query_gid(context, 1, 0, dgid));
const attr = {
  pkey_index: 0, port_num: 1, qp_access_flags: v.IBV_ACCESS_REMOTE_WRITE, path_mtu: v.IBV_MTU_1024,
  ah_attr: { is_global: 1, grh: { dgid, sgid_index: 0, hop_limit: 1 }, port_num: 1 },
  dest_qp_num: qp.qp_num, rq_psn: 7, sq_psn: 7, max_dest_rd_atomic: 1, max_rd_atomic: 1,
  min_rnr_timer: 12, timeout: 14, retry_cnt: 7, rnr_retry: 7,
};
const MASKS = [
  [v.IBV_QPS_INIT, ['PKEY_INDEX', 'PORT', 'ACCESS_FLAGS']],
  [v.IBV_QPS_RTR, ['AV', 'PATH_MTU', 'DEST_QPN', 'RQ_PSN', 'MAX_DEST_RD_ATOMIC', 'MIN_RNR_TIMER']],
  [v.IBV_QPS_RTS, ['SQ_PSN', 'TIMEOUT', 'RETRY_CNT', 'RNR_RETRY', 'MAX_QP_RD_ATOMIC']],
];
for (const [qp_state, names] of MASKS) {
  const mask = names.reduce((bits, name) => bits | v['IBV_QP_' + name], v.IBV_QP_STATE);
  must(await v.ibv_modify_qp(qp, { ...attr, qp_state }, mask));
}
must(v.ibv_post_send(qp, {
  wr_id: 5n, opcode: v.IBV_WR_RDMA_WRITE, send_flags: v.IBV_SEND_SIGNALED,
  sg_list: [{ addr: mr.addr, length: 9, lkey: mr.lkey }],
  wr: { rdma: { remote_addr: mr.addr + 32n, rkey: mr.rkey } },
}));
const wc = {};
while (v.ibv_poll_cq(cq, 1, wc) === 0) await new Promise((resolve) => setImmediate(resolve));
console.log(v.ibv_wc_status_str(wc.status), wc.wr_id, new TextDecoder().decode(memory.subarray(32, 41)));
await v.ibv_close_device(context);
`;

describe.skipIf(!hasCompiler && !process.env.CI)('installed by npm', () => {
  beforeAll(async () => {
    for (const folder of [project, tools]) mkdirSync(folder, { recursive: true });
    symlinkSync(process.execPath, join(tools, 'node'));
    // In the place of one that was built on musl: this machine's.
    mkdirSync(join(musl, target), { recursive: true });
    const own = join(root, 'native/build/Release/dgram_native.node');
    cpSync(own, join(musl, target, 'dgram_native.napi.musl.node'));
    const { stdout } = await run('sh', ['-c', `${PACK} --add ${musl}`], { cwd: root });
    writeFileSync(join(project, 'package.json'), '{ "name": "user", "private": true, "type": "module" }');
    // No script of a package runs: package managers block them.
    const args = ['install', '--no-audit', '--no-fund', '--ignore-scripts', ...stdout.trim().split('\n')];
    await run('npm', args, { cwd: project });
  }, 1_800_000); // It compiles the addon and the library.

  describe('the prebuilt addon', () => {
    test('needs glibc 2.28 at most, also by weak references, and no other library of the compiler', async () => {
      const { stdout } = await run('objdump', ['-p', addon]);
      const libraries = [...stdout.matchAll(/NEEDED +(\S+)/g)].map(([, library]) => library);
      expect(libraries).toContain('libc.so.6');
      expect(libraries.filter((library) => /stdc\+\+|gcc/.test(library))).toEqual([]);
      // Of each version one line: hash, flags (2: all its references are weak), number, name.
      const versions = [...stdout.matchAll(/^ +0x[\da-f]+ 0x[\da-f]+ \d+ (\S+)$/gm)].map(([, name]) => name);
      expect(versions.length).toBeGreaterThan(0);
      const newer = versions.filter((name) => {
        const [, minor] = /^GLIBC_2\.(\d+)(?:\.\d+)?$/.exec(name) ?? [];
        return minor === undefined || Number(minor) > 28;
      });
      expect(newer).toEqual([]);
    });

    test.each(['libibverbs.so.1', 'libroce-paths.so'])('so does %s', async (name) => {
      const { stdout } = await run('objdump', ['-p', join(native, 'prebuilds', target, 'ibverbs', name)]);
      const libraries = [...stdout.matchAll(/NEEDED +(\S+)/g)].map(([, library]) => library);
      expect(libraries).toEqual(['libpthread.so.0', 'libdl.so.2', 'libc.so.6']);
      const minors = [...stdout.matchAll(/ GLIBC_2\.(\d+)/g)].map(([, minor]) => Number(minor));
      expect(minors.length).toBeGreaterThan(0);
      expect(minors.filter((minor) => minor > 28)).toEqual([]);
    });

    test('libibverbs.so loads libibverbs.so.1, and leaves stacks as they are', async () => {
      const path = join(native, 'prebuilds', target, 'ibverbs/libibverbs.so');
      const { stdout } = await run('objdump', ['-p', path]);
      const libraries = [...stdout.matchAll(/NEEDED +(\S+)/g)].map(([, library]) => library);
      expect(libraries).toEqual(['libibverbs.so.1']);
      // glibc takes a library without this entry for one that needs stacks which can be executed.
      expect(stdout).toMatch(/^ +STACK off .*\n.* flags rw-$/m);
    });

    test('exports the entry points of Node-API only', async () => {
      const { stdout } = await run('objdump', ['-T', addon]);
      const exported = stdout
        .split('\n')
        .filter((line) => /^[\da-f]{16} /.test(line) && !line.includes('*UND*'));
      expect(exported.map((line) => line.split(/\s+/).at(-1)).sort()).toEqual([
        'napi_register_module_v1',
        'node_api_module_get_api_version_v1',
      ]);
    });

    test('turns C++ exceptions into errors', async () => {
      const code = `const { Socket } = await import(${JSON.stringify(join(native, 'index.js'))});
        const caught = [];
        for (let i = 0; i < 1000; i++) try { new Socket('no options'); } catch (error) { caught.push(error instanceof Error); }
        const { sharedObjects } = process.report.getReport();
        console.log(JSON.stringify({ errors: caught.filter(Boolean).length, addons: sharedObjects.filter((path) => path.endsWith('.node')) }));`;
      const { stdout } = await node(['--input-type=module', '-e', code]);
      expect(JSON.parse(stdout)).toEqual({ errors: 1000, addons: [addon] });
    });
  });

  test('a program runs over UDP, with the addon of the package', async () => {
    const { stdout } = await node([program()]);
    expect(stdout).toContain('SUCCESS written from afar');
    expect(stdout).toContain(addon);
  });

  test('an addon for musl that was added is the one that is loaded there', async () => {
    const { stdout } = await node([program()], process.execPath, { LIBC: 'musl' });
    expect(stdout).toContain('SUCCESS written from afar');
    expect(stdout).toContain(join(native, 'prebuilds', target, 'dgram_native.napi.musl.node'));
  });

  test('the package has the number of its addon, and refuses one of other sources', async () => {
    const text = readFileSync(join(native, 'build.js'), 'utf8');
    const [, number] = /^export const BUILD = '([0-9a-f]{16})';$/m.exec(text)!;
    expect(number).toBe(buildId());
    const bytes = readFileSync(addon);
    bytes.write('0123456789abcdef', bytes.indexOf(number));
    const release = join(native, 'build/Release');
    mkdirSync(release, { recursive: true });
    writeFileSync(join(release, 'dgram_native.node'), bytes);
    const failed = node([program(", link: 'udp'")]);
    await expect(failed).rejects.toMatchObject({ stderr: expect.stringContaining('ERR_ROCE_STALE_ADDON') });
    rmSync(join(native, 'build'), { recursive: true });
  });

  describe.each(NODES)('Node %s, as npm has it', (node) => {
    const folder = join(place, `node-${node}`);
    const executable = join(folder, 'node_modules', `node-linux-${process.arch}`, 'bin/node');
    beforeAll(async () => {
      mkdirSync(folder);
      writeFileSync(join(folder, 'package.json'), '{}');
      const name = `node-linux-${process.arch}@${node}`;
      await run('npm', ['install', '--no-audit', '--no-fund', name], { cwd: folder });
      expect((await run(executable, ['--version'])).stdout).toMatch(new RegExp(`^v${node}\\.`));
    }, ONLINE); // It downloads 60 MB.
    afterAll(() => rmSync(folder, { recursive: true }));

    // As a user types it, with the tarball of one package. Its scripts would run, if it had any: none compiles.
    test.each([
      ['npm', INSTALL],
      ['pnpm', `npx --yes pnpm@12 add ${TARBALL}`],
      ['yarn 1', `npx --yes yarn@1.22.22 add ${TARBALL}`],
      ['yarn 4', `npx --yes --package=@yarnpkg/cli-dist@4 yarn add node-roce@file:${TARBALL}`],
      ['bun', `npx --yes bun@1 add ${TARBALL}`],
    ])(
      '%s installs it without a compiler and without Python, and the program of README.md runs',
      { timeout: ONLINE },
      async (client, command) => {
        const project = join(folder, `by-${client.replace(' ', '-')}`);
        mkdirSync(project);
        const manifest = '{ "name": "user", "private": true, "type": "module" }';
        writeFileSync(join(project, 'package.json'), manifest);
        // Yarn 4 would look for a project in the folders above, and install without node_modules.
        writeFileSync(join(project, 'yarn.lock'), '');
        writeFileSync(join(project, '.yarnrc.yml'), 'nodeLinker: node-modules\n');
        const bin = join(folder, 'bin');
        mkdirSync(bin, { recursive: true });
        // The programs that scripts of a package manager call; no compiler. Each package manager runs on this Node.
        for (const tool of ['sh', 'env', 'uname', 'sed', 'dirname', 'readlink', 'basename']) link(tool, bin);
        for (const tool of ['npm', 'npx']) link(tool, bin);
        if (!existsSync(join(bin, 'node'))) symlinkSync(executable, join(bin, 'node'));
        const env = { ...process.env, PATH: bin };
        await run('sh', ['-c', command], { cwd: project, env });
        const addons = `console.log(process.report.getReport().sharedObjects.filter((path) => path.endsWith('.node')).join());`;
        writeFileSync(join(project, 'program.mjs'), `${PROGRAM}${addons}\n`);
        const { stdout, stderr } = await run(executable, ['program.mjs'], { cwd: project, env });
        expect([stdout.split('\n')[0], stderr]).toEqual(['hello', '']);
        expect(stdout).toContain('dgram_native.napi.glibc.node');
        console.log(`result: ${client} on Node ${node}: installed, the program of README.md runs`);
      },
    );
  });

  // As it will be once the packages are published: by their names, from a registry, here on loopback.
  describe('from a registry', () => {
    let registry: Server;
    beforeAll(async () => {
      const upstream = (await run('npm', ['config', 'get', 'registry'])).stdout.trim();
      registry = await serveRegistry(tarballs, upstream);
    });
    afterAll(() => registry.close());

    test.each([
      ['npm', 'npm install --no-audit --no-fund'],
      ['pnpm', 'npx --yes pnpm@12 add'],
    ])('%s installs the packages by their names', { timeout: ONLINE }, async (client, command) => {
      const folder = join(place, `named-${client}`);
      mkdirSync(folder);
      writeFileSync(join(folder, 'package.json'), '{ "name": "user", "private": true, "type": "module" }');
      const { port } = registry.address() as AddressInfo;
      const [packageManager = '', ...args] = command.split(' ');
      const from = { npm_config_registry: `http://127.0.0.1:${port}/` };
      // npx fetches pnpm from the usual registry; pnpm itself asks the one on loopback.
      const env = { ...process.env, ...(client === 'npm' && from) };
      if (client !== 'npm') writeFileSync(join(folder, '.npmrc'), `registry=${from.npm_config_registry}\n`);
      await run(packageManager, [...args, 'node-roce', '@node-roce/cli'], { cwd: folder, env });
      cpSync(program(), join(folder, 'program.mjs'));
      const { stdout } = await run(process.execPath, ['program.mjs'], { cwd: folder });
      expect(stdout).toContain('SUCCESS written from afar');
      const roce = await run(join(folder, 'node_modules/.bin/roce'), ['--version'], { cwd: folder });
      expect(roce.stdout).toBe(`${version}\n`);
    });
  });

  describe('is small, and starts quickly', () => {
    test('node-roce and all that npm installs with it have 12 MB at most', { timeout: ONLINE }, async () => {
      const folder = join(place, 'alone');
      mkdirSync(folder);
      install(folder, TARBALL);
      const bytes = installedBytes(folder);
      console.log(`result: node-roce has ${(bytes / 1e6).toFixed(1)} MB installed`);
      expect(bytes).toBeLessThanOrEqual(12e6);
    });

    // The time is printed; what it depends on is compared: Node needs some 0.3 ms for each file.
    test.each(['node-roce', 'node-roce/rdmacm'])('import of %s loads few files', (entry) => {
      const env = { PATH: tools, HOME: place };
      const files = filesOf(entry, project, env);
      expect(files.length).toBeGreaterThan(3);
      expect(files.length).toBeLessThanOrEqual(40);
      const one = { files: files.length, milliseconds: timesOf(entry, project, env) };
      console.log(`result: ${startLine(entry, one)}`);
    });
  });

  describe.each(['esm', 'cjs'] as const)('in a bundle of esbuild, as %s', (format) => {
    const out = join(place, `bundle-${format}`);
    const file = join(out, `program.${format === 'esm' ? 'mjs' : 'cjs'}`);
    const esbuild = createRequire(join(root, 'packages/capture/package.json'))('esbuild');
    const code = `import { openDevice } from 'node-roce';
      import { analyzeCapture } from 'node-roce/capture/node';
      const [link, engine] = process.argv.slice(2);
      openDevice({ address: '127.80.${process.pid & 0xff}.1', link, engine }).then(async (device) => {
        console.log('opened', typeof analyzeCapture, (await device.query()).gids.length);
        await device.close();
      }).catch((error) => console.log(error.code, error.message));`;
    const bundle = (stdin: object, outfile: string) =>
      esbuild.build({ stdin, outfile, bundle: true, platform: 'node', format, logLevel: 'silent' });
    beforeAll(() => bundle({ contents: code, resolveDir: project }, file));

    test('names the missing file', async () => {
      const { stdout } = await node([file, 'udp', 'inline']);
      expect(stdout).toMatch(/^ERR_ROCE_NO_ADDON .*copy the folder "prebuilds" of node-roce to /);
      const { stderr } = await node([file, 'auto', 'inline']);
      expect(stderr).toContain('copy the folder "prebuilds"');
      const threaded = await node([file, 'dgram', 'worker']);
      expect(threaded.stdout).toMatch(/^ERR_ROCE_ENGINE .*bundle node-roce\/worker as worker\.js/);
    });

    test('runs with the files that deployment.md names', async () => {
      cpSync(join(native, 'prebuilds'), join(out, 'prebuilds'), { recursive: true });
      expect((await node([file, 'udp', 'inline'])).stdout).toMatch(/^opened function/);
      if (format === 'cjs') return;
      writeFileSync(join(out, 'package.json'), '{ "type": "module" }');
      await bundle({ contents: "import 'node-roce/worker';", resolveDir: project }, join(out, 'worker.js'));
      expect((await node([file, 'udp', 'worker'])).stdout).toMatch(/^opened function/);
    });
  });

  test('exported classes have their names', async () => {
    const code = `for (const entry of ['', '/rdmacm', '/rsocket', '/ibverbs', '/pcap/node', '/wire'])
      for (const [name, value] of Object.entries(await import('node-roce' + entry)))
        if (/^class/.test(value) && value.name !== name) console.log(entry, name, value.name);`;
    expect((await node(['--input-type=module', '-e', code])).stdout).toBe('');
  });

  test('a WRITE by the names of libibverbs', async () => {
    const path = join(project, 'write.mjs');
    writeFileSync(path, WRITE.replace('ADDRESS', `127.79.${process.pid & 0xff}.1`));
    expect((await node([path])).stdout).toBe('success 5n from afar\n');
  });

  test('the command', async () => {
    const roce = join(project, 'node_modules/.bin/roce');
    expect((await node([roce, '--version'])).stdout).toContain(version);
    const { stdout } = await node([roce, 'perf', 'write', 'bw', '--local', '-n', '20', '--json']);
    expect(JSON.parse(stdout)).toBeTypeOf('object');
    const doctor = await node([roce, 'doctor', '--json']).catch((failed: { stdout: string }) => failed);
    const { checks } = JSON.parse(doctor.stdout);
    const addon = { check: 'addon', verdict: 'ok', text: expect.stringMatching(/^loaded/) };
    expect(checks).toContainEqual(addon);
  });

  test('the command runs an RDMA program, with the library of the package', async () => {
    link('ibv_devinfo', tools);
    const roce = join(project, 'node_modules/.bin/roce');
    const address = `127.81.${process.pid & 0xff}.1`;
    const { stdout } = await node([roce, 'run', '-a', address, 'ibv_devinfo']);
    expect(stdout).toMatch(/^hca_id:\sroce0\n[\s\S]*PORT_ACTIVE/);
  });

  test.each(['node16', 'nodenext', 'bundler'])('strict TypeScript with %s', async (resolution) => {
    const module = resolution === 'bundler' ? 'esnext' : resolution;
    const names = PRODUCTS.flatMap(({ name, exports }: { name: string; exports: object }) =>
      Object.keys(exports)
        .filter((path) => !path.endsWith('.json'))
        .map((path) => path.replace('.', name)),
    );
    const imports = names.map(
      (name: string, i: number) =>
        `import * as p${i} from '${name}';\nexport const q${i} = Object.keys(p${i});`,
    );
    writeFileSync(join(project, 'all.ts'), imports.join('\n'));
    const compilerOptions = {
      ...{
        strict: true,
        noEmit: true,
        target: 'es2023',
        skipLibCheck: false,
        exactOptionalPropertyTypes: true,
      },
      ...{ module, moduleResolution: resolution, types: ['node'] },
      typeRoots: [join(root, 'node_modules/@types')],
    };
    const config = join(project, `tsconfig.${resolution}.json`);
    writeFileSync(config, JSON.stringify({ compilerOptions, files: ['all.ts'] }));
    const tsc = join(root, 'node_modules/typescript/bin/tsc');
    const checked = spawnSync(process.execPath, [tsc, '-p', config], { cwd: project, encoding: 'utf8' });
    expect(checked.stdout + checked.stderr).toBe('');
  });

  test('publint and arethetypeswrong find nothing', async () => {
    for (const file of readdirSync(tarballs)) {
      const data = Uint8Array.from(readFileSync(join(tarballs, file)));
      const { messages } = await publint({ pack: { tarball: data.buffer }, strict: true });
      expect(messages, file).toEqual([]);
      const analysis = await checkPackage(createPackageFromTarballData(data));
      if (!analysis.types) throw new Error(`${file} has no types`);
      // The packages are ES modules only: what node10 and require() find is not asked.
      const wrong = analysis.problems.filter((problem) =>
        (['node16-esm', 'bundler'] as const).some((kind) =>
          problemAffectsResolutionKind(problem, kind, analysis),
        ),
      );
      expect(wrong, file).toEqual([]);
    }
  });

  describe('without the addon', () => {
    beforeAll(() => renameSync(join(native, 'prebuilds'), join(place, 'prebuilds')));
    afterAll(() => cpSync(join(place, 'prebuilds'), join(native, 'prebuilds'), { recursive: true }));

    test('the program runs over dgram, with a warning that names the command; the UDP link has an error', async () => {
      const command = `npx --yes node-gyp@12 rebuild --directory=${native}`;
      const { stdout, stderr } = await node([program()]);
      expect(stdout).toContain('SUCCESS written from afar');
      expect(stderr).toContain('ROCE_DGRAM_LINK');
      expect(stderr).toContain(command);
      const failed = await node([program(", link: 'udp'")]).catch((error: { stderr: string }) => error);
      expect(failed.stderr).toContain('ERR_ROCE_NO_ADDON');
      expect(failed.stderr).toContain(command);
    });

    test('that command, with a compiler, makes it', { timeout: ONLINE }, async () => {
      const { stderr } = await node([program()]);
      const [, command] = /`npx (--yes node-gyp@12 rebuild --directory=\S+)`/.exec(stderr)!;
      const env = { ...process.env, npm_config_nodedir: nodeDir() ?? '', JOBS: 'max' };
      await run('npx', command.split(' '), { cwd: project, env, maxBuffer: 2 ** 26 });
      const { stdout } = await node([program()]);
      expect(stdout).toContain('SUCCESS written from afar');
      expect(stdout).toContain(join(native, 'build/Release'));
    });
  });
});
