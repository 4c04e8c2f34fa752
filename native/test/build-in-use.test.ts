/** Building the library of `roce run` while programs use it. */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';

const script = join(import.meta.dirname, '../ibverbs/build.mjs');
const LIBRARIES = ['libibverbs.so', 'libibverbs.so.1', 'libroce-paths.so'];
const BEFORE = 'of before';
/** A checkout without the headers and compilers builds none. */
const isBuilt = existsSync(join(dirname(script), 'build/libibverbs.so.1'));

/** Builds into a folder with libraries of before, by a compiler that notes which of them are there, and then ends so. */
function buildOver(end: string) {
  const folder = mkdtempSync(join(tmpdir(), 'roce-build-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const out = join(folder, 'out');
  const log = join(folder, 'log');
  const compiler = join(folder, 'cc');
  mkdirSync(out);
  for (const name of LIBRARIES) writeFileSync(join(out, name), BEFORE);
  const paths = LIBRARIES.map((name) => `"${join(out, name)}"`).join(' ');
  const note = `case "$*" in *-c*|*-shared*) cat ${paths} >> "${log}" 2>&1; echo >> "${log}"; ${end};; esac`;
  writeFileSync(compiler, `#!/bin/sh\n${note}\nexec gcc "$@"\n`);
  chmodSync(compiler, 0o755);
  const env = { ...process.env, CC: compiler };
  const { status } = spawnSync(process.execPath, [script, '--prebuilt', out], { env });
  const seen = readFileSync(log, 'utf8').trimEnd().split('\n');
  return { status, out, seen, left: readdirSync(folder).sort() };
}

test.skipIf(!isBuilt)(
  'the libraries of before are there until those of a build take their place',
  {
    tags: ['slow'],
  },
  () => {
    const { status, out, seen, left } = buildOver(':');
    expect(status).toBe(0);
    expect(seen.length).toBeGreaterThan(10);
    expect(new Set(seen)).toEqual(new Set([BEFORE.repeat(LIBRARIES.length)]));
    expect(readdirSync(out).sort()).toEqual(LIBRARIES);
    for (const name of LIBRARIES) expect(readFileSync(join(out, name)).subarray(1, 4).toString()).toBe('ELF');
    expect(left).toEqual(['cc', 'log', 'out']);
  },
);

test.skipIf(!isBuilt)(
  'a build that fails leaves neither libraries of other sources nor parts of its own',
  () => {
    const { status, seen, left } = buildOver('exit 1');
    expect(status).toBe(1);
    expect(seen).toEqual([BEFORE.repeat(LIBRARIES.length)]);
    expect(left).toEqual(['cc', 'log']);
  },
);
