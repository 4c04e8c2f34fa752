/**
 * Programs of two users: neither reaches the device, the objects or the memory of the other. Needs root, to become both; with
 * ROCE_ROOT_TESTS set, as in .ci/run, it fails without.
 */
import { type SpawnOptions, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, copyFileSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { DeviceServer, libraryPath, programEnvironment } from '@node-roce/device';
import { expect, test } from 'vitest';
import { listening, whyMissing } from './programs/programs.ts';

const isRoot = process.getuid?.() === 0;
if (!isRoot && process.env.ROCE_ROOT_TESTS) throw new Error('programs of two users need root');

/** No accounts: the kernel compares numbers. */
const OWNER = { uid: 54_321, gid: 54_321 };
const OTHER = { uid: 54_322, gid: 54_322 };
const PORT = 23_917;

test.skipIf(!isRoot || whyMissing() !== undefined)(
  'the program of another user reaches neither the device nor the memory of a program',
  { timeout: 60_000 },
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-users-'));
    const open = mkdtempSync(join(tmpdir(), 'roce-library-'));
    // The checkout may be in a folder that only root enters.
    const library = join(open, 'libibverbs.so.1');
    const preloaded = join(open, 'libroce-paths.so');
    copyFileSync(libraryPath(), library);
    copyFileSync(join(dirname(libraryPath()), basename(preloaded)), preloaded);
    for (const path of [open, library, preloaded]) chmodSync(path, 0o755);
    const server = await DeviceServer.listen({ address: '127.0.0.78', path: join(folder, 'a.sock') });
    const options: SpawnOptions = { env: programEnvironment(library, server.path, process.env), cwd: '/' };
    const run = async (user: typeof OWNER, program: string, ...args: string[]) => {
      const child = spawn(program, args, { ...options, ...user, timeout: 20_000 });
      let output = '';
      for (const stream of [child.stdout, child.stderr])
        stream?.on('data', (data) => {
          output += data;
        });
      const [code] = await once(child, 'close');
      return { code, output };
    };
    // As if the owner had started the device.
    for (const path of [folder, server.path]) chownSync(path, OWNER.uid, OWNER.gid);
    const program = spawn('ibv_rc_pingpong', ['-g', '0', '-p', `${PORT}`], {
      ...options,
      ...OWNER,
      stdio: 'ignore',
      timeout: 50_000,
    });
    const ended = once(program, 'close');
    try {
      await listening(PORT);
      expect(server.status.programs).toBe(1);
      expect((await run(OWNER, 'ibv_devinfo')).output).toContain('node_guid');

      const refused = async () => {
        const { code, output } = await run(OTHER, 'ibv_devinfo');
        expect(code, output).not.toBe(0);
        // The GUID comes from the device.
        expect(output).not.toContain('node_guid');
      };
      await refused();
      // Each of the two modes refuses by itself.
      chmodSync(dirname(server.path), 0o755);
      await refused();
      chmodSync(dirname(server.path), 0o700);
      chmodSync(server.path, 0o666);
      await refused();
      chmodSync(dirname(server.path), 0o755);
      expect((await run(OTHER, 'ibv_devinfo')).code, 'with both modes open').toBe(0);

      const descriptors = `/proc/${program.pid}/fd`;
      const memory = readdirSync(descriptors).find((fd) =>
        readlinkSync(join(descriptors, fd)).startsWith('/memfd:'),
      );
      expect(memory).toBeDefined();
      const path = join(descriptors, `${memory}`);
      const opens = (user: typeof OWNER) => spawnSync('sh', ['-c', `exec 3<${path}`], user);
      expect(opens(OWNER).status).toBe(0);
      expect(opens(OTHER).status).not.toBe(0);
      expect(`${opens(OTHER).stderr}`).toContain('Permission denied');
    } finally {
      program.kill('SIGKILL');
      await ended;
      await server.close();
      for (const path of [folder, open]) rmSync(path, { recursive: true });
    }
  },
);
