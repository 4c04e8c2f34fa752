/** The check of imports (scripts/imports) finds violations of its rules, planted into the real sources. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { repository, violations } from '../../scripts/imports/check.mjs';
// @ts-expect-error: plain JavaScript
import { circlesOf, importsOf } from '../../scripts/imports/graph.mjs';

const real = repository();

/** The real repository with other files in it. */
function planted(files: Record<string, string>, change: object = {}): string[] {
  const more = Object.entries(files).map(([path, code]) => [path, importsOf(path, code)] as const);
  const sources = new Map([...real.sources, ...more]);
  return violations({ ...real, sources, ...change });
}

test('the repository keeps its rules', () => {
  expect(violations(real)).toEqual([]);
});

test('every source file of every package is read', () => {
  const packages = join(import.meta.dirname, '../../packages');
  const files = readdirSync(packages).flatMap((name) =>
    readdirSync(join(packages, name, 'src'), { recursive: true, encoding: 'utf8' })
      .filter((file) => /\.[cm]?[jt]sx?$/.test(file))
      .map((file) => `packages/${name}/src/${file}`),
  );
  expect(files.length).toBeGreaterThan(250);
  expect(files.filter((file) => !real.sources.has(file))).toEqual([]);
});

test.each(['ts', 'tsx', 'mts', 'cts', 'js', 'mjs', 'cjs', 'jsx'])(
  'a file .%s that only the disk has is read',
  (ext) => {
    const root = mkdtempSync(join(tmpdir(), 'roce-imports-'));
    onTestFinished(() => rmSync(root, { recursive: true }));
    const path = `packages/wire/src/planted.${ext}`;
    mkdirSync(join(root, 'packages/wire/src'), { recursive: true });
    mkdirSync(join(root, 'scripts/imports'), { recursive: true });
    for (const file of [
      'scripts/imports/rules.json',
      'packages/wire/package.json',
      'packages/wire/tsconfig.json',
    ])
      cpSync(join(import.meta.dirname, '../..', file), join(root, file));
    const statement = ext === 'cjs' ? "require('@node-roce/transport');" : "import '@node-roce/transport';";
    writeFileSync(join(root, path), statement);
    spawnSync('git', ['init', '-q', root]);
    const found: string[] = violations(repository(root));
    expect(found).toContain(`${path} imports @node-roce/transport, which its package.json does not name`);
  },
);

test('a file that git knows and the check did not read', () => {
  const all = [...real.all, 'packages/new/src/unseen.ts'];
  expect(violations({ ...real, all })).toEqual(['packages/new/src/unseen.ts was not read']);
});

test.each([
  ['a value', "import { b } from './planted-b.ts';\nexport const a = b;\n"],
  ['a type', "import type { B } from './planted-b.ts';\nexport type A = B;\n"],
  ['a re-export', "export * from './planted-b.ts';\n"],
  ['a type in place', "export type A = import('./planted-b.ts').B;\n"],
  ['a dynamic import', "export const a = () => import('./planted-b.ts');\n"],
  ['a dynamic import of a template', 'export const a = () => import(`./planted-b.ts`);\n'],
  ['require', "export const a = require('./planted-b.ts');\n"],
])('a circle of files through %s', (_by, code) => {
  const folder = 'packages/capture/src/flow';
  const files = {
    [`${folder}/planted-a.ts`]: code,
    [`${folder}/planted-b.ts`]: "import * as c from '../read/planted-c.ts';\nexport { c };\n",
    'packages/capture/src/read/planted-c.ts': "export * from '../flow/planted-a.ts';\n",
  };
  expect(planted(files)).toEqual([
    `circle of files: ${folder}/planted-a.ts, ${folder}/planted-b.ts, packages/capture/src/read/planted-c.ts`,
  ]);
});

const PLANTED = 'planted.ts';

test.each([
  ['an arrow that is not allowed', 'wire/src', '@node-roce/transport', /transport, which .* does not name/],
  ['a path into another package', 'wire/src', '../../transport/src/index.ts', /outside of its package/],
  [
    'a file behind a door',
    'transport/src/qp',
    '../requester/recovery/probe.ts',
    /past the door recovery\.ts/,
  ],
  ['a file that does not exist', 'wire/src', './gone.ts', /which is no file/],
  ['a part of Node where there is no I/O', 'transport/src', 'node:fs', /does no I\/O/],
  ['a part of Node without its scheme', 'pcap/src', 'fs', /does no I\/O/],
  ['a part of Node where browsers load the code', 'capture/src/read', 'node:zlib', /browsers load it/],
  ['the entry for Node where browsers load the code', 'capture/src', '@node-roce/pcap/node', /needs Node/],
  [
    'a file that needs Node where browsers load the code',
    'capture/src/read',
    '../node/read.ts',
    /needs Node/,
  ],
  ['a part of Node for browsers without I/O', 'pcap/src/web', 'node:zlib', /browsers load it/],
  ['a package that the manifest does not name', 'link/src', 'lodash', /does not name/],
  ['a development dependency that is not bundled', 'capture/src', 'preact', /does not name/],
  ['an oracle that imports what it judges', 'sim/src/model', '@node-roce/transport', /outside of the oracle/],
  [
    'an oracle that reads headers by what it judges',
    'sim/src/model',
    '@node-roce/wire',
    /outside of the oracle/,
  ],
  ['an oracle that imports anything at all', 'sim/src/cm-model', '@node-roce/wire', /outside of the oracle/],
  ['an oracle that imports its neighbour', 'sim/src/model', '../network/pair.ts', /outside of the oracle/],
])('%s', (_what, folder, specifier, words) => {
  const path = `packages/${folder}/${PLANTED}`;
  const found = planted({ [path]: `import * as x from '${specifier}';\nexport { x };\n` });
  expect(found.filter((line) => line.startsWith(`${path} imports ${specifier}`))[0]).toMatch(words);
});

test.each([
  ['the package that it judges', 'test/perf/perftest-peer/', '@node-roce/perf'],
  ['a part of that package', 'test/perf/perftest-peer/', '@node-roce/verbs-api/dist/engine/engine.js'],
  ['a file from outside', 'test/perf/perftest-peer/', '../../packages/sim/src/index.ts'],
])('an oracle of the tests that imports %s', (_what, oracle, specifier) => {
  const path = `${oracle}planted.mjs`;
  const found = planted({ [path]: `import * as x from '${specifier}';\nexport { x };\n` });
  expect(found).toEqual([`${path} imports ${specifier}, outside of the oracle ${oracle}`]);
});

describe('manifests and project references', () => {
  const { wire, link } = real.manifests;

  test('a dependency against the rules, though it is declared', () => {
    const manifests = {
      ...real.manifests,
      wire: { ...wire, dependencies: { '@node-roce/link': 'workspace:*' } },
    };
    const files = { [`packages/wire/src/${PLANTED}`]: "export * from '@node-roce/link';\n" };
    expect(planted(files, { manifests })).toEqual([
      `packages/wire/src/${PLANTED} imports @node-roce/link, which its rule does not allow`,
      `packages/wire/src/${PLANTED} imports @node-roce/link, which its tsconfig.json does not reference`,
      'packages/wire depends on link',
    ]);
  });

  test('a package from outside where there is no I/O', () => {
    const manifests = { ...real.manifests, wire: { ...wire, dependencies: { lodash: '1' } } };
    const files = { [`packages/wire/src/${PLANTED}`]: "import 'lodash/get';\n" };
    expect(planted(files, { manifests })).toEqual([
      `packages/wire/src/${PLANTED} imports lodash/get, a package from outside`,
    ]);
  });

  test('a package without a rule, and a rule without a package', () => {
    const { link: _, ...packages } = real.rules.packages;
    expect(violations({ ...real, rules: { ...real.rules, packages } })).toContain(
      'packages/link has no rule',
    );
    const rules = { ...real.rules, packages: { ...real.rules.packages, gone: [] } };
    expect(violations({ ...real, rules })).toEqual([
      'there is a rule for packages/gone, which does not exist',
    ]);
    expect(link.name).toBe('@node-roce/link');
  });
});

test('biome refuses clocks, timers, randomness and I/O in wire, transport and pcap, and not in pcap/node', () => {
  const root = join(import.meta.dirname, '../..');
  const directory = mkdtempSync(join(tmpdir(), 'roce-biome-'));
  try {
    cpSync(join(root, 'biome.json'), join(directory, 'biome.json'));
    for (const plugin of ['no-math-random', 'no-index-assertion'])
      cpSync(join(root, `scripts/${plugin}.grit`), join(directory, `scripts/${plugin}.grit`));
    const expressions = ['Math.random()', 'Date.now()', 'setTimeout(f, 1)', 'process.env', 'Buffer.from([])'];
    const code = `export const f = () => [${expressions.join(', ')}];\n`;
    for (const folder of ['wire/src', 'transport/src', 'cm/src', 'pcap/src', 'pcap/src/node', 'link/src']) {
      mkdirSync(join(directory, 'packages', folder), { recursive: true });
      writeFileSync(join(directory, 'packages', folder, PLANTED), code);
    }
    const biome = join(root, 'node_modules/.bin/biome');
    const args = ['lint', '--colors=off', '--vcs-enabled=false', '.'];
    const { status, stdout, stderr } = spawnSync(biome, args, { cwd: directory, encoding: 'utf8' });
    const found = [...(stdout + stderr).matchAll(/^packages\/(\S+)\/planted\.ts:/gm)].map(
      ([, folder]) => folder,
    );
    const each = (folder: string) => expressions.map(() => folder);
    expect(found.sort()).toEqual([
      ...each('cm/src'),
      ...each('pcap/src'),
      ...each('transport/src'),
      ...each('wire/src'),
    ]);
    expect(status).toBe(1);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test('imports of every form are found, and no comment or string is one', () => {
  const code = `
    import { a } from '@node-roce/wire'; // import 'no'
    import type { b } from "./b.ts"; /* import 'no' */
    import {
      c,
    } from 'c';
    export * from './d.ts';
    export { x } from './x.ts';
    import 'e';
    const f = await import('f'); const url = "import 'no'";
    type G = import('g').G;
    const h = require('h'), i = await import(\`i\`);
    using j = f;
  `;
  expect(importsOf('a.ts', code).sort()).toEqual([
    './b.ts',
    './d.ts',
    './x.ts',
    '@node-roce/wire',
    'c',
    'e',
    'f',
    'g',
    'h',
    'i',
  ]);
  expect(() => importsOf('a.ts', 'import {')).toThrow('a.ts');
});

test('circles are found by their files, each once', () => {
  const graph = new Map([
    ['a', ['b', 'c']],
    ['b', ['d']],
    ['c', ['d']],
    ['d', ['e']],
    ['e', ['b', 'f']],
    ['f', []],
    ['g', ['g']],
  ]);
  expect(circlesOf(graph)).toEqual([['b', 'd', 'e'], ['g']]);
});
