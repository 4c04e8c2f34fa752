/**
 * Programs of two users: neither reaches the device, the objects or the memory of the other. Needs root, to become both; with
 * ROCE_ROOT_TESTS set, as in .ci/run, it fails without.
 */
import { type SpawnOptions, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, copyFileSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { DeviceServer, hasGainedCapabilities, libraryPath, programEnvironment } from '@node-roce/device';
import { expect, test } from 'vitest';
import { listening, whyMissing } from './programs.ts';

const isRoot = process.getuid?.() === 0;
if (!isRoot && process.env.ROCE_ROOT_TESTS) throw new Error('programs of two users need root');

/** Listens as a device does, and answers nothing. */
const LISTENER = `
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
s.listen()
print(flush=True)
s.accept()
s.accept()
`;

/** No accounts: the kernel compares numbers. */
const OWNER = { uid: 54_321, gid: 54_321 };
const OTHER = { uid: 54_322, gid: 54_322 };
const PORT = 23_917;

test.skipIf(!isRoot || whyMissing() !== undefined)(
  'the program of another user reaches neither the device nor the memory of a program',
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
      const child = spawn(program, args, { ...options, ...user, timeout: 240_000 });
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
      timeout: 240_000,
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

test.skipIf(!isRoot || whyMissing() !== undefined)(
  'a program does not speak to the device of another user',
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-users-'));
    chmodSync(folder, 0o777);
    const path = join(folder, 'a.sock');
    const listener = spawn('python3', ['-c', LISTENER, path], {
      ...OTHER,
      cwd: '/',
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    try {
      await once(listener.stdout, 'data');
      const env = programEnvironment(libraryPath(), path, process.env);
      // The library may be in a folder that only root enters: root does not speak to it, either.
      const { stdout, stderr } = spawnSync('ibv_devinfo', { env, encoding: 'utf8', timeout: 240_000 });
      expect(stdout + stderr).toContain('No IB devices found');
      expect(stderr).toContain(`the device at ${path} is another user's`);
    } finally {
      listener.kill('SIGKILL');
      rmSync(folder, { recursive: true });
    }
  },
);

test.skipIf(!isRoot || spawnSync('which', ['setcap']).status !== 0)(
  'a program whose file has capabilities is known, and another is not',
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-capabilities-'));
    chmodSync(folder, 0o755);
    const copy = join(folder, 'sleep');
    copyFileSync('/bin/sleep', copy);
    chmodSync(copy, 0o755);
    const isKnown = () => {
      const child = spawn(copy, ['1000'], { ...OWNER, stdio: 'ignore', cwd: '/' });
      // The one that starts it has them, too: the file counts.
      const found = hasGainedCapabilities(child.pid!);
      child.kill();
      return found;
    };
    expect(isKnown()).toBe(false);
    expect(spawnSync('setcap', ['cap_ipc_lock+ep', copy], { encoding: 'utf8' }).stderr).toBe('');
    expect(isKnown()).toBe(true);
    expect(hasGainedCapabilities(process.pid)).toBe(false);
    rmSync(folder, { recursive: true });
  },
);
