import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import * as constants from './constants.ts';

const HEADER = '/usr/include/infiniband/verbs.h';

test.skipIf(!existsSync(HEADER))('every constant has the value of <infiniband/verbs.h>', () => {
  const names = Object.keys(constants);
  const folder = mkdtempSync(join(tmpdir(), 'ibverbs-constants-'));
  try {
    const lines = names.map((name) => `printf("${name} %lld\\n", (long long)${name});`);
    writeFileSync(
      join(folder, 'print.c'),
      `#include <infiniband/verbs.h>\n#include <stdio.h>\nint main(void) { ${lines.join('\n')} return 0; }\n`,
    );
    execFileSync('cc', ['-o', join(folder, 'print'), join(folder, 'print.c')]);
    const printed = execFileSync(join(folder, 'print'), { encoding: 'utf8' }).trim().split('\n');
    expect(
      Object.fromEntries(printed.map((line) => [line.split(' ')[0], Number(line.split(' ')[1])])),
    ).toEqual({
      ...constants,
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('well-known constants have their values', () => {
  expect(constants).toMatchObject({
    IBV_QPT_RC: 2,
    IBV_QPT_UD: 4,
    IBV_QPS_RTS: 3,
    IBV_QP_STATE: 1,
    IBV_QP_DEST_QPN: 1 << 20,
    IBV_QP_RATE_LIMIT: 1 << 25,
    IBV_MTU_4096: 5,
    IBV_WR_SEND: 2,
    IBV_WC_RECV: 128,
    IBV_WC_WR_FLUSH_ERR: 5,
    IBV_ACCESS_REMOTE_ATOMIC: 8,
    IBV_EVENT_GID_CHANGE: 18,
  });
});
