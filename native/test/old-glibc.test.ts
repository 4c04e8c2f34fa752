/** Symbols of glibc that the libraries of `roce run` ask for: they may be built on a newer one than programs run on. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const build = join(import.meta.dirname, '../ibverbs/build');
const libraries = ['libibverbs.so.1', 'libroce-paths.so'];

test.skipIf(!existsSync(join(build, libraries[0]))).each(libraries)('%s needs glibc 2.28 at most', (name) => {
  const table = execFileSync('objdump', ['-T', join(build, name)], { encoding: 'utf8' });
  const needed = [...table.matchAll(/\*UND\*.*GLIBC_2\.(\d+)\S* +(\S+)$/gm)];
  expect(needed.length).toBeGreaterThan(20);
  expect(needed.filter(([, minor]) => Number(minor) > 28).map(([, , symbol]) => symbol)).toEqual([]);
});
