/** Memory that programs register, by sharing and by attaching: every kind of it, next to everything else that a program does with it. */
// @module-tag slow
// @module-tag gate
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Devices, whyMissing } from './programs.ts';

const missing = whyMissing();
const isThere = (program: string) => spawnSync('which', [program]).status === 0;
const folder = mkdtempSync(join(tmpdir(), 'roce-memory-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Compiles a program of programs/. @returns its path; undefined where the compiler has no such sanitizer */
function compile(name: string, compiler = 'cc', sanitizer?: string): string | undefined {
  const program = join(folder, [name, compiler, sanitizer].join('-'));
  const source = fileURLToPath(new URL(`./${name}.c`, import.meta.url));
  const flags = ['-O1', '-g', '-pthread', '-rdynamic', ...(sanitizer ? [`-fsanitize=${sanitizer}`] : [])];
  const { status, stderr } = spawnSync(compiler, [...flags, source, '-o', program, '-libverbs'], {
    encoding: 'utf8',
  });
  if (status !== 0 && sanitizer !== undefined && /cannot find|no such file/i.test(stderr)) return undefined;
  expect(status, stderr).toBe(0);
  return program;
}

describe.skipIf(missing !== undefined)('registered memory of programs', () => {
  let devices: Devices;
  beforeAll(async () => {
    devices = await Devices.open('127.0.0.78');
  });
  afterAll(async () => {
    await devices.close();
  });

  const run = async (program: string, args: readonly string[] = [], memory?: string) => {
    const line = memory === undefined ? [] : ['env', `ROCE_MEMORY=${memory}`];
    const [first, ...rest] = [...line, program, ...args];
    const ended = await devices.start(0, first, rest).ended;
    expect(ended.output).toMatch(/^ok$/m);
    expect(ended).toMatchObject({ code: 0, signal: null });
    return ended.output;
  };

  test.each([undefined, 'attach'])(
    'every kind of it works, and fails once it is gone (%s)',
    async (memory) => {
      await run(compile('attached')!, [], memory);
    },
  );

  test.each([
    ['asks', 'two threads may ask and register at once, next to each other in the heap'],
    ['inherits', 'a mutex with priority inheritance on its page goes on'],
    ['wakes', 'a semaphore between processes on its page wakes who waits'],
    ['locks', 'locked pages stay locked'],
    ['advises', 'advice of madvise stays'],
    ['converts', 'pages are converted a piece at a time'],
    ['locks all', 'mlockall locks what the program has, not the rings that are not used'],
  ])('%s: %s', async (what) => {
    await run(compile('together')!, [what]);
  });

  test.each([
    ['cancels', 'a lock between processes is initialised by a thread that was cancelled'],
    ['forks', 'a child gives advice though another thread was locking'],
    ['handles', 'a handler gives advice though its thread was locking'],
    ['fails', 'results and errno are those of libc'],
  ])('calls of libc stay what they are: %s: %s', async (what) => {
    await run(compile('calls')!, [what]);
  });

  test('an allocator may hold its lock over fork while memory is registered', async () => {
    await run(compile('allocator')!);
  });

  test('the new program is untouched after exec, while a peer writes to the old one', async () => {
    const program = compile('executes')!;
    for (let i = 0; i < 3; i++) await run(program);
  });

  test.each(['all', 'doorbell', 'eventfd', 'memory', 'connection', 'reopens'])(
    'a program that closes the library’s descriptors (%s) loses its contexts, and nothing else',
    async (what) => {
      const output = await run(compile('descriptors')!, [what]);
      expect(output).toContain('the program has closed a descriptor of the library');
    },
  );

  test('pages with the stack that deregisters them become the program’s own again', async () => {
    await run(compile('coroutines')!);
  });

  test.each(['EPERM', 'EACCES', 'ENOSYS'] as const)(
    'a filter that refuses statx and copies between processes (%s) is in the way of nothing',
    async (name) => {
      await run(compile('filtered')!, [`${constants.errno[name]}`, compile('attached')!]);
    },
  );

  test('memory that does not answer ends its program and not the device', async () => {
    const ended = await devices.start(0, compile('blocks')!, []).ended;
    expect(ended.output).toMatch(/^(ok|skipped)$/m);
    expect(ended.code).toBe(0);
  });

  const compilers = ['gcc', 'clang'].filter(isThere);
  const sanitized = compilers.flatMap((compiler) =>
    ['address', 'undefined', 'thread'].map((sanitizer) => [compiler, sanitizer] as const),
  );

  test.each(sanitized)('programs of %s -fsanitize=%s run, without a report', async (compiler, sanitizer) => {
    for (const name of ['attached', 'threads']) {
      const program = compile(name, compiler, sanitizer);
      if (program !== undefined) await run(program);
    }
  });

  const tools = [
    'valgrind -q --error-exitcode=3',
    'strace -f -o /dev/null',
    'gdb -batch -return-child-result -ex run --args',
  ];

  test.each(tools.filter((line) => isThere(line.split(' ')[0])))('%s', async (line) => {
    const [tool, ...args] = line.split(' ');
    await run(tool, [...args, compile('attached')!]);
  });
});
