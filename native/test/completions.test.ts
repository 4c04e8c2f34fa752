/** Time and tag of the completions that the C library polls (completions.c). */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const polling = join(import.meta.dirname, '../ibverbs/build/poll.o');

test.skipIf(!existsSync(polling))(
  'a completion has its own time and tag, however late it is published',
  () => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-completions-'));
    const program = join(folder, 'completions');
    const source = join(import.meta.dirname, 'completions.c');
    execFileSync('cc', ['-D_GNU_SOURCE', '-pthread', source, polling, '-o', program]);
    const lines = execFileSync(program, { encoding: 'utf8' }).trim().split('\n');
    rmSync(folder, { recursive: true });
    expect(lines).toEqual(Array.from({ length: 32 }, (_, i) => `${i + 1} ${i + 1} ${i + 1}`));
  },
);
