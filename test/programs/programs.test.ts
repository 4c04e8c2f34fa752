/** Debian's programs of libibverbs on node-roce's library: what they print, how they end, and what is left of killed ones. */
// @module-tag slow
// @module-tag gate
import { spawn, spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { DeviceServer, libraryPath, programEnvironment, socketPath } from '@node-roce/device';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Devices, type Ended, listening, roce, whyMissing } from './programs.ts';

const missing = whyMissing();
if (missing) console.log(`programs of libibverbs are not run: ${missing}`);

/** Programs to kill. */
const KILLS = Number(process.env.ROCE_PROGRAM_KILLS ?? 4);

/** Descriptors of this process. */
function descriptors(): { sockets: number; others: number } {
  const names = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return ''; // Of the folder that was read.
    }
  });
  const sockets = names.filter((name) => name.startsWith('socket:')).length;
  return { sockets, others: names.length - sockets };
}

let devices: Devices;
let port = 21_000;

describe.skipIf(missing !== undefined)('programs of libibverbs', () => {
  beforeAll(async () => {
    devices = await Devices.open('127.0.0.71', '127.0.0.72');
  });
  afterAll(async () => {
    await devices.close();
  });

  const play = async (program: string, ...args: string[]) => {
    const [server, client] = await devices.pair(program, args, ++port);
    const what = `server:\n${server.output}\nclient:\n${client.output}`;
    expect([server.code, client.code], what).toEqual([0, 0]);
    return [server.output, client.output];
  };

  test('ibv_devinfo shows a device, a port that is active and its GID', async () => {
    const { code, output } = await devices.start(0, 'ibv_devinfo', ['-v']).ended;
    expect(code).toBe(0);
    expect(output).toMatch(/hca_id:\s+roce0/);
    expect(output).toMatch(/state:\s+PORT_ACTIVE/);
    expect(output).toMatch(/GID\[ *0\]:\s+::ffff:127\.0\.0\.71, RoCE v2/);
    expect(output).not.toMatch(/invalid/);
    // The library has no ibv_create_flow.
    expect(output).toMatch(/MEM_WINDOW_TYPE_2B/);
    // Limits of a program's memory, not of the engine.
    expect(output).toMatch(/max_mr_size:\s+0x100000000$/m);
    expect(output).toMatch(/max_mr:\s+2048$/m);
    expect(output).not.toMatch(/MANAGED_FLOW_STEERING/);
  });

  test.each([
    'ibv_rc_pingpong -c',
    'ibv_rc_pingpong -e -c -s 20000',
    'ibv_uc_pingpong',
    'ibv_ud_pingpong -e',
    'ibv_srq_pingpong',
  ])('%s ends well at both sides', async (line) => {
    const [program, ...options] = line.split(' ');
    for (const output of await play(program, '-g', '0', '-n', '100', ...options))
      expect(output).toMatch(/100 iters in/);
  });

  test.skipIf(spawnSync('which', ['fi_pingpong']).status !== 0)(
    'fi_pingpong of libfabric, over UD, gives its figures',
    async () => {
      const args = ['-p', 'verbs;ofi_rxd', '-e', 'rdm', '-I', '10', '-S', '4096', '-c'];
      const server = devices.start(0, 'fi_pingpong', [...args, '-B', `${++port}`]);
      await listening(port);
      const client = devices.start(1, 'fi_pingpong', [...args, '-P', `${port}`, '127.0.0.1']);
      for (const { code, output } of [await server.ended, await client.ended]) {
        expect(code, output).toBe(0);
        expect(output).toMatch(/^4k +10 /m);
      }
    },
  );

  /** Compiles a program of programs/ and runs it at the first device. */
  const compileAndRun = async (name: string, before: readonly string[] = []): Promise<Ended> => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-compiled-'));
    const program = join(folder, name);
    const source = fileURLToPath(new URL(`./${name}.c`, import.meta.url));
    const compiled = spawnSync('cc', ['-O1', '-pthread', '-rdynamic', source, '-o', program, '-libverbs'], {
      encoding: 'utf8',
    });
    expect(compiled.status, compiled.stderr).toBe(0);
    const [first, ...rest] = [...before, program];
    const ended = await devices.start(0, first, rest).ended;
    rmSync(folder, { recursive: true });
    return ended;
  };

  test.each(['forks', 'threads', 'closing', 'polls'])('%s.c finds nothing wrong', async (name) => {
    const ended = await compileAndRun(name);
    expect(ended.output).toMatch(/^ok$/m);
    expect(ended).toMatchObject({ code: 0, signal: null });
  });

  test('registered memory keeps every byte and every store, and is the program’s again afterwards', async () => {
    // Memory that sharing refuses is attached otherwise.
    const ended = await compileAndRun('memory', ['env', 'ROCE_MEMORY=share']);
    expect(ended).toMatchObject({ code: 0, signal: null });
    // The reason why a region is refused is on stderr: an errno has none.
    const reasons = ended.output
      .match(/^libibverbs of roce run: .*$/gm)
      ?.map((line) => line.replace(/^.*: /, ''));
    expect(reasons).toEqual([
      'it is the stack of this thread',
      'it is not mapped',
      'it is memory that is shared with children (MAP_SHARED)',
      'it is a mapped memfd',
      'it is POSIX shared memory',
      'it is a mapped file that is shared (MAP_SHARED)',
      'it is System V shared memory',
      "it is code, or can't be read",
      'it is in huge pages that are shared',
      "the kernel refuses to map the device's file there, or no memory is left",
      'it is read-only, and the access flags let the device write',
    ]);
    expect(ended.output).toMatch(/^ok$/m);
  });

  test.each(['auto', 'attach'])('a program that has no descriptors left gets EMFILE (%s)', async (memory) => {
    const script = `
import ctypes, os, resource
v = ctypes.CDLL('libibverbs.so.1', use_errno=True)
for name in ['ibv_get_device_list', 'ibv_open_device', 'ibv_alloc_pd', 'ibv_reg_mr']: getattr(v, name).restype = ctypes.c_void_p
for name in ['ibv_open_device', 'ibv_alloc_pd']: getattr(v, name).argtypes = [ctypes.c_void_p]
v.ibv_reg_mr.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
device = ctypes.cast(v.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))[0]
free = os.dup(0)
os.close(free)
for more in range(4):
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, 1024))
    print(v.ibv_open_device(device), os.strerror(ctypes.get_errno()))
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
context = v.ibv_open_device(device)
pd = v.ibv_alloc_pd(context)
memory = ctypes.create_string_buffer(65536)
register = lambda: v.ibv_reg_mr(pd, ctypes.addressof(memory), 65536, 1)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, 1024))
print(register(), os.strerror(ctypes.get_errno()))
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
print(register() is not None)
`;
    const { output } = await devices.start(0, 'env', [
      `ROCE_MEMORY=${memory}`,
      ...['/usr/bin/python3', '-c', script],
    ]).ended;
    expect(output.replace(/^libibverbs of roce run: .*: no descriptor is left .*\n/m, '')).toBe(
      `${'None Too many open files\n'.repeat(5)}True\n`,
    );
    // Nor does the device keep those of which the program took no descriptors.
    await expect.poll(() => devices.servers[0].status).toEqual({ programs: 0, objects: 0 });
  });

  test('a device that has ended, and one that is not there, are named', async () => {
    const script = `
import ctypes, time
v = ctypes.CDLL('libibverbs.so.1')
for name in ['ibv_get_device_list', 'ibv_open_device', 'ibv_alloc_pd']: getattr(v, name).restype = ctypes.c_void_p
v.ibv_open_device.argtypes = v.ibv_alloc_pd.argtypes = [ctypes.c_void_p]
context = v.ibv_open_device(ctypes.cast(v.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))[0])
print('ready', flush=True)
while v.ibv_alloc_pd(context): time.sleep(0.05)
for i in range(3):
    count = ctypes.c_int(-1)
    v.ibv_alloc_pd(context)
    v.ibv_get_device_list(ctypes.byref(count))
    print(count.value)
`;
    const own = await Devices.open('127.0.0.70');
    const { path } = own.servers[0];
    const program = own.start(0, '/usr/bin/python3', ['-c', script]);
    await once(program.child.stdout!, 'data');
    await own.close();
    const { output } = await program.ended;
    expect(output.trimEnd().split('\n').sort()).toEqual([
      '0',
      '0',
      '0',
      expect.stringMatching(`^libibverbs of roce run: no device answers at ${path}: `),
      'libibverbs of roce run: the device has ended the connection',
      'ready',
    ]);
  });

  test('a program may open the device again after the device was restarted, before it closes the old context', async () => {
    const script = `
import ctypes, os, time
v = ctypes.CDLL('libibverbs.so.1')
for name in ['ibv_get_device_list', 'ibv_open_device', 'ibv_alloc_pd', 'ibv_reg_mr']: getattr(v, name).restype = ctypes.c_void_p
v.ibv_open_device.argtypes = v.ibv_alloc_pd.argtypes = [ctypes.c_void_p]
v.ibv_reg_mr.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
device = ctypes.cast(v.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))[0]
text = ctypes.create_string_buffer(b'x' * 9000)
def register(context): return v.ibv_reg_mr(v.ibv_alloc_pd(context), ctypes.addressof(text), 9000, 1) is not None
first = v.ibv_open_device(device)
print(register(first), flush=True)
while v.ibv_alloc_pd(first): time.sleep(0.01)
while not (second := v.ibv_open_device(device)): time.sleep(0.01)
print(register(second), text.value == b'x' * 9000, flush=True)
if os.fork() == 0: os._exit(text.value != b'x' * 9000)
print(os.wait()[1])
`;
    const address = '127.0.0.69';
    const own = await Devices.open(address);
    const [{ path }] = own.servers;
    const program = own.start(0, '/usr/bin/python3', ['-c', script]);
    await once(program.child.stdout!, 'data');
    await own.servers[0].close();
    const second = await DeviceServer.listen({ address, path });
    const { output } = await program.ended;
    await second.close();
    rmSync(dirname(path), { recursive: true });
    expect(output.split('\n').filter((line) => !line.startsWith('libibverbs'))).toEqual([
      'True',
      'True True',
      '0',
      '',
    ]);
  });

  test('a program may load the library by the name without a version', async () => {
    const script = `
import ctypes
count = ctypes.c_int(-1)
ctypes.CDLL('libibverbs.so').ibv_get_device_list(ctypes.byref(count))
print(count.value, *[line.split()[1] for line in open('/proc/self/maps') if '[stack]' in line])
`;
    // Its stack stays what it was: not executable.
    const { output } = await devices.start(0, '/usr/bin/python3', ['-c', script]).ended;
    expect(output).toBe('1 rw-p\n');
  });

  test('too little address space for the rings is named', async () => {
    const { code, output } = await devices.start(0, 'prlimit', ['--as=500000000', 'ibv_devinfo']).ended;
    expect(code).not.toBe(0);
    expect(output).toMatch(/1024 MiB of addresses for rings: Cannot allocate memory \(.*ulimit -v\)/);
  });

  test.skipIf(process.getuid?.() !== 0)(
    'a root without /proc is named where memory is registered',
    async () => {
      const hidden = 'mount -t tmpfs none /proc && exec ibv_rc_pingpong -g 0 127.0.0.70';
      const { code, output } = await devices.start(0, 'unshare', ['-m', 'sh', '-c', hidden]).ended;
      expect(code).not.toBe(0);
      expect(output).toMatch(/can't be registered: \/proc\/self\/maps can't be opened; it is needed/);
    },
  );

  test('ROCE_DEBUG=1 prints why a call has failed', async () => {
    const script = `
import ctypes
v = ctypes.CDLL('libibverbs.so.1')
for name in ['ibv_get_device_list', 'ibv_open_device', 'ibv_create_cq']: getattr(v, name).restype = ctypes.c_void_p
v.ibv_open_device.argtypes = [ctypes.c_void_p]
v.ibv_create_cq.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
device = ctypes.cast(v.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))[0]
print(v.ibv_create_cq(v.ibv_open_device(device), 1 << 30, None, None, 0))
`;
    const outputs = [];
    for (const value of ['1', '0']) {
      const line = ['-c', `ROCE_DEBUG=${value} exec /usr/bin/python3 -c "$0"`, script];
      outputs.push((await devices.start(0, 'sh', line).ended).output);
    }
    expect(outputs[0]).toMatch(/libibverbs of roce run: CREATE_CQ: Invalid argument: cqe: .*expected/);
    expect(outputs[1]).toBe('None\n');
  });

  test.skipIf(!existsSync('/usr/include/gloo/transport/ibverbs/device.h'))(
    'a program of Gloo sums and broadcasts over its ibverbs transport',
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'roce-gloo-'));
      const program = join(folder, 'collective');
      const source = fileURLToPath(new URL('collective.cc', import.meta.url));
      const flags = ['-O1', '-pthread', source, '-o', program, '-lgloo', '-libverbs'];
      const compiled = spawnSync('c++', flags, { encoding: 'utf8' });
      expect(compiled.status, compiled.stderr).toBe(0);
      const ranks = [0, 1].map((rank) =>
        devices.start(rank, program, [`${rank}`, '2', folder, 'roce0', '0']),
      );
      for (const { code, output } of await Promise.all(ranks.map(({ ended }) => ended))) {
        expect(output).toMatch(/^ok$/m);
        expect(code).toBe(0);
      }
      rmSync(folder, { recursive: true });
    },
  );

  test('with ROCE_DEBUG=1 every verb that fails prints why, and without it none', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-fails-'));
    const program = join(folder, 'fails');
    const source = fileURLToPath(new URL('fails.c', import.meta.url));
    spawnSync('cc', [source, '-o', program, '-libverbs'], { stdio: 'inherit' });
    const outputOf = async (value: string) => {
      const { output, code } = await devices.start(0, 'env', [`ROCE_DEBUG=${value}`, program]).ended;
      expect(output).toMatch(/^ok$/m);
      expect(code).toBe(0);
      return output.split(/^== /m).slice(1);
    };
    const calls = await outputOf('1');
    expect(calls.length).toBeGreaterThan(50);
    const reasons = /^(libibverbs of roce run: .+: .+)$/m;
    expect(calls.filter((call) => !reasons.test(call) && !call.startsWith('the end'))).toEqual([]);
    // Memory that can't be registered is reported in any case.
    const quiet = (await outputOf('0')).filter(
      (call) => reasons.test(call) && !call.includes('be registered'),
    );
    rmSync(folder, { recursive: true });
    expect(quiet).toEqual([]);
  });

  test('a program that is killed under traffic leaves nothing, and its peer gets its error', {
    timeout: 300_000 + KILLS * 30_000,
  }, async () => {
    const all = () => devices.servers.map(({ status }) => status);
    const used = () => ({
      ...descriptors(),
      mappings: readdirSync('/proc/self/map_files').length,
      bytes: process.memoryUsage().rss,
    });
    const none = { programs: 0, objects: 0 };
    let before = used();
    for (let round = 0; round < KILLS; round++) {
      const args = ['-p', `${++port}`, '-x', '0', '-D', '60'];
      const server = devices.start(0, 'ib_write_bw', args);
      await listening(port);
      const client = devices.start(1, 'ib_write_bw', [...args, '127.0.0.1']);
      // A region, a domain, a completion queue and a queue pair, on both sides: from here on they connect, then write.
      while (all().some(({ objects }) => objects < 4)) await sleep(5);
      await sleep(randomInt(400));
      const [killed, left] = round % 2 === 0 ? [server, client] : [client, server];
      killed.child.kill('SIGKILL');
      expect(await killed.ended).toMatchObject({ signal: 'SIGKILL' });
      const { code, output } = await left.ended;
      expect(code, `round ${round}: ${output}`).toBeGreaterThan(0);
      for (let i = 0; i < 500 && all().some(({ programs }) => programs > 0); i++) await sleep(10);
      expect(all()).toEqual([none, none]);
      // Resources that are made once exist by now.
      if (round === 4) before = used();
    }
    await play('ibv_rc_pingpong', '-g', '0', '-n', '20', '-c');
    // A device hears of the end of a program a moment later.
    const connections = () => devices.servers.map((server) => server.connections);
    for (let i = 0; i < 500 && connections().some((open) => open > 0); i++) await sleep(10);
    expect(connections()).toEqual([0, 0]);
    const after = used();
    if (KILLS > 10) console.log(`${KILLS} programs killed: ${JSON.stringify({ before, after })}`);
    expect(after.others).toBeLessThanOrEqual(before.others + 1);
    // The pool of sockets that an address sends from, one a source port.
    expect(after.sockets).toBeLessThanOrEqual(before.sockets + 2 * 16);
    expect(after.mappings).toBeLessThan(before.mappings + 50);
    expect(after.bytes).toBeLessThan(before.bytes + 64 * 2 ** 20);
  });
});

/** What `roce run` printed, without the line about a device that is silent for seconds, as on a busy machine. */
const withoutWait = (stderr: string) => stderr.replace(/^roce run: waiting for an answer at .*\n/m, '');

test.skipIf(missing !== undefined)('the demo captures every packet, and every ICRC is right', () => {
  const folder = mkdtempSync(join(tmpdir(), 'roce-demo-run-'));
  const demo = fileURLToPath(new URL('../../scripts/demo-run.mjs', import.meta.url));
  const ran = spawnSync(process.execPath, [demo, 'ibv_rc_pingpong', '-c', '-n', '100'], {
    cwd: folder,
    encoding: 'utf8',
    timeout: 240_000,
  });
  rmSync(folder, { recursive: true });
  expect(withoutWait(ran.stderr)).toBe('');
  expect(ran.status).toBe(0);
  const [, packets, right] = /(\d+) RoCE v2 packets, ICRC right in (\d+), wrong in 0,/.exec(ran.stdout) ?? [];
  expect(right).toBe(packets);
  // Four packets of data for each message, and 100 messages each way.
  expect(Number(packets)).toBeGreaterThanOrEqual(800);
});

describe.skipIf(missing !== undefined)('roce run', () => {
  const folder = mkdtempSync(join(tmpdir(), 'roce-run-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const run = (...args: string[]) =>
    spawnSync(process.execPath, [roce, 'run', ...args], {
      encoding: 'utf8',
      env: { ...process.env, XDG_RUNTIME_DIR: folder },
      timeout: 240_000,
    });

  test('starts a device where none is there, and uses it again', () => {
    for (let i = 0; i < 2; i++) {
      const { status, stdout, stderr } = run('-a', '127.0.0.73', 'ibv_devinfo');
      expect(withoutWait(stderr)).toBe('');
      expect(stdout).toMatch(/hca_id:\s+roce0/);
      expect(status).toBe(0);
    }
  });

  test('options after the program are the program’s', () => {
    expect(run('-a', '127.0.0.73', 'sh', '-c', 'echo $0 $1', '--help', '-a').stdout).toBe('--help -a\n');
    expect(run('-a', '127.0.0.73', '--', 'echo', '--', '-x').stdout).toBe('-- -x\n');
  });

  test('--memory and the options of AddressSanitizer reach the program', () => {
    const given = (...args: string[]) =>
      run('-a', '127.0.0.73', ...args, 'printenv', 'ROCE_MEMORY', 'ASAN_OPTIONS').stdout;
    expect(given()).toBe('verify_asan_link_order=0\n');
    expect(given('--memory', 'attach')).toBe('attach\nverify_asan_link_order=0\n');
    expect(given('--memory', 'share')).toBe('share\nverify_asan_link_order=0\n');
    const wrong = run('--memory', 'copy', 'true');
    expect(wrong.status).toBe(2);
    expect(wrong.stderr).toContain('one of auto, attach, share');
  });

  test('another libibverbs that is preloaded does not take the device away', () => {
    const { stdout } = spawnSync('cc', ['-print-file-name=libibverbs.so.1'], { encoding: 'utf8' });
    const env = programEnvironment(libraryPath(), 'unused', { ...process.env, LD_PRELOAD: stdout.trim() });
    expect(env.LD_PRELOAD?.split(':').slice(1)).toEqual([libraryPath(), stdout.trim()]);
    const args = ['run', '-a', '127.0.0.73', 'ibv_devices'];
    const ran = spawnSync(process.execPath, [roce, ...args], {
      encoding: 'utf8',
      env: { ...process.env, XDG_RUNTIME_DIR: folder, LD_PRELOAD: stdout.trim() },
    });
    expect(ran.stdout).toContain('roce0');
  });

  test('passes exit codes and signals on', async () => {
    expect(run('-a', '127.0.0.73', 'sh', '-c', 'exit 7').status).toBe(7);
    expect(run('-a', '127.0.0.73', 'sh', '-c', 'kill -9 $$').status).toBe(137);
    const child = spawn(
      process.execPath,
      [
        roce,
        'run',
        '-a',
        '127.0.0.73',
        'sh',
        '-c',
        'trap "exit 5" TERM; echo up; while :; do sleep 0.05; done',
      ],
      { env: { ...process.env, XDG_RUNTIME_DIR: folder }, stdio: ['ignore', 'pipe', 'inherit'] },
    );
    await once(child.stdout, 'data');
    child.kill('SIGTERM');
    expect((await once(child, 'exit'))[0]).toBe(5);
  });

  test('stays with a program that goes on at SIGINT and SIGTERM, at the second one, too', async () => {
    const program =
      'trap "echo one more" INT; trap "echo one more" TERM; trap "exit 5" HUP; echo up; while :; do sleep 0.05; done';
    const child = spawn(process.execPath, [roce, 'run', '-a', '127.0.0.73', 'sh', '-c', program], {
      env: { ...process.env, XDG_RUNTIME_DIR: folder },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = once(child, 'exit');
    await once(child.stdout, 'data');
    for (const signal of ['SIGINT', 'SIGINT', 'SIGTERM', 'SIGTERM'] as const) {
      child.kill(signal);
      await Promise.race([once(child.stdout, 'data'), ended]);
    }
    child.kill('SIGHUP');
    expect((await ended)[0]).toBe(5);
  });

  test('names a program that it cannot run', () => {
    expect(run('no-such-program').status).toBe(127);
    // An ELF header of 64 bits without a program header, thus without a loader.
    const header = Buffer.alloc(64);
    header.write('\x7fELF\x02\x01\x01', 'latin1');
    header.writeUInt16LE(56, 54);
    const program = join(folder, 'static');
    writeFileSync(program, header, { mode: 0o755 });
    const { status, stderr } = run(program);
    expect(status).toBe(126);
    expect(stderr).toContain('statically linked');
    header[4] = 1;
    const small = join(folder, 'small');
    writeFileSync(small, header, { mode: 0o755 });
    expect(run(small)).toMatchObject({ status: 126, stderr: expect.stringContaining('of 32 bits') });
    // A program header that names a loader, at 64, and the name behind it.
    const elf = Buffer.alloc(256);
    header[4] = 2;
    header.copy(elf);
    elf.writeBigUInt64LE(64n, 32);
    elf.writeUInt16LE(1, 56);
    elf.writeUInt32LE(3, 64);
    elf.writeBigUInt64LE(128n, 72);
    elf.writeBigUInt64LE(64n, 96);
    elf.write('/lib/ld-musl-x86_64.so.1', 128, 'latin1');
    const shell = join(folder, 'shell');
    writeFileSync(shell, elf, { mode: 0o755 });
    const ofMusl = join(folder, 'of-musl');
    writeFileSync(ofMusl, `#! ${shell} -e\n`, { mode: 0o755 });
    for (const [path, what] of [
      [shell, 'shell: linked with musl (/lib/ld-musl-x86_64.so.1)'],
      [ofMusl, `a script of ${shell}, which is linked with musl`],
    ])
      expect(run(path)).toMatchObject({ status: 126, stderr: expect.stringContaining(what) });
    expect(run(folder)).toMatchObject({ status: 126, stderr: expect.stringContaining('a directory') });
    const script = join(folder, 'script');
    writeFileSync(script, '#!/bin/sh\n', { mode: 0o644 });
    const notExecutable = { status: 126, stderr: expect.stringContaining('not executable') };
    expect(run(script)).toMatchObject(notExecutable);
    const mine = join(folder, 'mine');
    copyFileSync('/bin/true', mine);
    expect(run('-a', '127.0.0.73', mine).status).toBe(0);
  });

  test('refuses a device in a folder that others can enter', async () => {
    const open = mkdtempSync(join(tmpdir(), 'roce-run-open-'));
    mkdirSync(join(open, 'roce'), { mode: 0o755 });
    const other = createServer().listen(join(open, 'roce/127.0.0.73.sock'));
    const args = [roce, 'run', '-a', '127.0.0.73', 'echo', 'it ran'];
    const child = spawn(process.execPath, args, { env: { ...process.env, XDG_RUNTIME_DIR: open } });
    const output = (await child.stdout.toArray()).join('') + (await child.stderr.toArray()).join('');
    other.close();
    rmSync(open, { recursive: true });
    expect(output).toContain('must belong to this user, mode 700');
    expect(output).not.toContain('it ran');
  });

  test('names the reason where no device can be started', () => {
    const { status, stderr } = run('-a', '192.0.2.99', 'true');
    expect(status).toBe(1);
    expect(stderr).toContain('192.0.2.99');
    expect(stderr).toContain('no interface');
  });

  /** As `run`, with this in the device's process before all else. */
  const runWith = (code: string, ...args: string[]) => {
    const first = `if(process.argv.includes("device"))${code}`;
    return spawnSync(process.execPath, [roce, 'run', ...args], {
      encoding: 'utf8',
      env: {
        ...process.env,
        XDG_RUNTIME_DIR: folder,
        NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(first)}`,
      },
      timeout: 240_000,
    });
  };

  test('names the signal that ended a device while it started', () => {
    const { status, stderr } = runWith('process.kill(process.pid,"SIGKILL")', '-a', '127.0.0.75', 'true');
    expect(status).toBe(1);
    expect(stderr).toContain('SIGKILL');
  });

  test('waits for a device that starts slowly', { tags: ['slow'] }, () => {
    const code = 'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)),0,0,16000)';
    const { status, stdout, stderr } = runWith(code, '-a', '127.0.0.75', 'echo', 'it ran');
    expect([status, stdout, withoutWait(stderr)]).toEqual([0, 'it ran\n', '']);
  });

  test('leaves no device behind that has not answered in time', { tags: ['slow'] }, async () => {
    const file = join(folder, 'pid');
    const note = `(await import("node:fs")).writeFileSync("${file}",String(process.pid))`;
    const code = `{${note};Atomics.wait(new Int32Array(new SharedArrayBuffer(4)),0,0)}`;
    const { status, stderr } = runWith(code, '-a', '127.0.0.77', 'true');
    expect(status).toBe(1);
    expect(stderr).toContain('no device answered within 120 s');
    const started = `/proc/${readFileSync(file, 'utf8')}`;
    for (let i = 0; i < 500 && existsSync(started); i++) await sleep(20);
    expect(existsSync(started)).toBe(false);
  });

  test('starts a device where the one that is there ends at this moment', async () => {
    const environment = { ...process.env, XDG_RUNTIME_DIR: folder };
    const path = socketPath('127.0.0.76', environment);
    mkdirSync(dirname(path), { mode: 0o700, recursive: true });
    // As a device whose idle time is over: it takes a connection, and ends.
    const ending = createServer((socket) => {
      socket.destroy();
      ending.close();
    }).listen(path);
    await once(ending, 'listening');
    const args = [roce, 'run', '-a', '127.0.0.76', 'ibv_devinfo'];
    const child = spawn(process.execPath, args, { env: environment });
    const [out, err] = await Promise.all([child.stdout.toArray(), child.stderr.toArray()]);
    expect(withoutWait(err.join(''))).toBe('');
    expect(out.join('')).toMatch(/hca_id:\s+roce0/);
  });

  const canUnshare = spawnSync('unshare', ['-n', 'true']).status === 0;

  test.skipIf(!canUnshare)(
    'has a device for each network namespace, also at one address and side by side',
    async () => {
      // Each program, and thus its device, stays until it has nothing more to read.
      const line = ['run', '-a', '127.0.0.74', 'sh', '-c', 'ibv_devinfo; echo $ROCE_SOCKET; cat'];
      const there = `ip link set lo up && exec "$@"`;
      const environment = { ...process.env, XDG_RUNTIME_DIR: folder };
      const children = [
        [process.execPath, roce, ...line],
        ['unshare', '-n', 'sh', '-c', there, 'sh', process.execPath, roce, ...line],
      ].map(([program, ...args]) =>
        spawn(program, args, { env: environment, stdio: ['pipe', 'pipe', 'inherit'] }),
      );
      const sockets = await Promise.all(
        children.map(async ({ stdout }) => {
          let output = '';
          for await (const data of stdout) {
            output += data;
            const [, socket] = /hca_id:\s+roce0[\s\S]*^(\/.*)$/m.exec(output) ?? [];
            if (socket !== undefined) return socket;
          }
          return output;
        }),
      );
      expect(sockets[0]).toBe(socketPath('127.0.0.74', environment));
      expect(sockets[1]).not.toBe(sockets[0]);
      // The device of the other namespace is refused, by `roce run` and by both libraries.
      const refused = run('--socket', sockets[1], 'ibv_devinfo');
      expect(refused.status).toBe(1);
      expect(refused.stderr).toMatch(
        /is in another network namespace \(net:\[\d+\]; here it is net:\[\d+\]\)/,
      );
      const env = programEnvironment(libraryPath(), sockets[1], process.env);
      for (const program of ['ibv_devinfo', 'rping -c -C 1 -a 127.0.0.1']) {
        const [name, ...rest] = program.split(' ');
        if (spawnSync('which', [name]).status !== 0) continue;
        const ran = spawnSync(name, rest, {
          env: env as NodeJS.ProcessEnv,
          encoding: 'utf8',
          timeout: 240_000,
        });
        expect(ran.status).not.toBe(0);
        expect(ran.stderr).toContain('is in another network namespace: its packets would leave there');
      }
      for (const child of children) child.stdin.end();
      await Promise.all(children.map((child) => once(child, 'exit')));
    },
  );

  test.skipIf(spawnSync('which', ['rping']).status !== 0)(
    'has all addresses of the interface without -a, IPv4 and IPv6 on one port',
    async () => {
      const { status, stdout, stderr } = run('ibv_devinfo', '-v');
      expect([status, stderr]).toEqual([0, '']);
      expect(stdout).toMatch(/GID\[ *\d+\]:\s+::ffff:127\.0\.0\.1, RoCE v2/);
      expect(stdout).toMatch(/GID\[ *\d+\]:\s+::1, RoCE v2/);
      for (const address of ['127.0.0.1', '::1']) {
        const child = spawn(process.execPath, [roce, 'run', 'rping', '-s', '-a', '::0', '-C', '2'], {
          env: { ...process.env, XDG_RUNTIME_DIR: folder },
          stdio: 'ignore',
        });
        const ended = once(child, 'exit');
        // A client that comes too early is refused, and the server does not hear of it.
        let client = run('rping', '-c', '-C', '2', '-a', address);
        for (let tries = 0; client.status !== 0 && tries < 50; tries++)
          client = run('rping', '-c', '-C', '2', '-a', address);
        expect(client.status, client.stderr).toBe(0);
        expect(await ended).toEqual([0, null]);
      }
    },
  );
});
