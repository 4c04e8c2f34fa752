/** Functions of the C library that need no device (library.c). */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const build = join(import.meta.dirname, '../ibverbs/build');

test.skipIf(!existsSync(join(build, 'libibverbs.so.1')))(
  'rates, names of opcodes, messages without memory',
  () => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-library-'));
    const program = join(folder, 'library');
    const objects = readdirSync(build).filter((name) => name.endsWith('.o'));
    const run = (command: string, args: string[]) => {
      const { status, signal, stdout, stderr } = spawnSync(command, args, { encoding: 'utf8' });
      return { status, signal, output: stdout + stderr };
    };
    const source = join(import.meta.dirname, 'library.c');
    const inputs = [source, ...objects.map((name) => join(build, name))];
    const compiled = run('cc', ['-D_GNU_SOURCE', '-pthread', '-Wl,--wrap=mmap', ...inputs, '-o', program]);
    expect(compiled).toMatchObject({ status: 0 });
    expect(run(program, [])).toEqual({ status: 0, signal: null, output: 'ok\n' });
    rmSync(folder, { recursive: true });
  },
);
