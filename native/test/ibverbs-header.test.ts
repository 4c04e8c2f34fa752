/** The C library with the header of a release before its own. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const HEADER = '/usr/include/infiniband/verbs.h';
const built = join(import.meta.dirname, '../ibverbs/build/libibverbs.so.1');

test.skipIf(!existsSync(built))(
  'compiles with a header before rdma-core 44, which has no ATOMIC WRITE',
  () => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-header-'));
    mkdirSync(join(folder, 'infiniband'));
    const lines = readFileSync(HEADER, 'utf8').replace(
      /^.*IBV_QP_EX_WITH_ATOMIC_WRITE.*\n|^.*\(\*wr_atomic_write\)[^;]*;\n|^static inline void ibv_wr_atomic_write[^}]*}\n/gm,
      '',
    );
    expect(lines).not.toMatch(/WITH_ATOMIC_WRITE|wr_atomic_write/);
    writeFileSync(join(folder, 'infiniband/verbs.h'), lines);
    const source = join(import.meta.dirname, '../ibverbs/extended.c');
    const { status, stderr } = spawnSync(
      'cc',
      [
        '-fsyntax-only',
        '-Wall',
        '-Wextra',
        '-Werror',
        '-D_GNU_SOURCE',
        '-DROCE_NO_ATOMIC_WRITE',
        '-I',
        folder,
        source,
      ],
      { encoding: 'utf8' },
    );
    rmSync(folder, { recursive: true });
    expect(status, stderr).toBe(0);
  },
);
