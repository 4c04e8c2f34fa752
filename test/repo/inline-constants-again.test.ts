/** `scripts/inline-constants.mjs` after a constant has changed, and names that may stand for no number, or another one. */
import { execFileSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const PACKAGES = ['wire', 'transport', 'link', 'verbs-api'];

let tree: string;

function write(path: string, text: string): void {
  mkdirSync(dirname(join(tree, path)), { recursive: true });
  writeFileSync(join(tree, path), text);
}

function built(path: string): string {
  return readFileSync(join(tree, 'packages', path), 'utf8');
}

/** The two steps of `npm run build:ts`. */
function build(): void {
  for (const step of ['node_modules/typescript/bin/tsc', 'scripts/inline-constants.mjs'])
    execFileSync(process.execPath, [step, '--build'], { cwd: tree });
}

beforeAll(() => {
  tree = mkdtempSync(join(tmpdir(), 'inline-constants-again-'));
  symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'));
  for (const file of ['tsconfig.base.json', 'scripts/inline-constants.mjs'])
    cpSync(join(ROOT, file), join(tree, file));
  write('package.json', '{ "type": "module" }');
  const references = PACKAGES.map((name) => ({ path: `packages/${name}` }));
  write('tsconfig.json', JSON.stringify({ files: [], references }));
  for (const name of PACKAGES) {
    cpSync(join(ROOT, 'packages/wire/tsconfig.json'), join(tree, 'packages', name, 'tsconfig.json'));
    write(`packages/${name}/package.json`, '{ "type": "module" }');
    write(`packages/${name}/src/index.ts`, "export * from './all.ts';\n");
    write(`packages/${name}/src/all.ts`, "export { SIZE } from './size.ts';\n");
    write(`packages/${name}/src/size.ts`, 'export const SIZE = 5;\n');
    write(
      `packages/${name}/src/user.ts`,
      "import { SIZE } from './index.ts';\nexport const user = () => SIZE;\n",
    );
  }
  write('packages/link/src/all.ts', "export const SIZE = 1;\nexport * from './size.ts';\n");
  write('packages/link/src/big.ts', 'export const NEGATIVE = -7n;\n');
  write(
    'packages/link/src/negative.ts',
    "import { SIZE } from './size.ts';\nimport { NEGATIVE } from './big.ts';\nconst LESS = -SIZE;\nexport const f = () => [LESS, NEGATIVE];\n",
  );
  write('packages/link/src/path.ts', 'export const LARGE = 500;\nexport const small = 3;\n');
  write(
    'packages/link/src/hiding.ts',
    "export { LARGE, small as sep } from './path.ts';\nlet LARGE = 1;\nlet sep = 2;\nexport const f = () => [LARGE, sep];\nexport const set = (n: number) => {\n  LARGE = n;\n  sep = n;\n};\n",
  );
  build();
});
afterAll(() => rmSync(tree, { recursive: true }));

test('a constant that changes has its new number everywhere', () => {
  expect(built('wire/dist/user.js')).toContain('=> 5');
  write('packages/wire/src/size.ts', 'export const SIZE = 6;\n');
  build();
  expect(built('wire/dist/user.js')).toContain('=> 6');
});

test('… also where the build before ended between its steps', () => {
  write('packages/transport/src/size.ts', 'export const SIZE = 77;\n');
  execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', '--build'], { cwd: tree });
  build();
  expect(built('transport/dist/user.js')).toContain('=> 77');
});

test('… also where the record of the numbers is gone', () => {
  rmSync(join(tree, '.cache'), { recursive: true });
  write('packages/transport/src/size.ts', 'export const SIZE = 78;\n');
  build();
  expect(built('transport/dist/user.js')).toContain('=> 78');
});

test('a build in which nothing changed writes nothing', () => {
  const texts = () =>
    readdirSync(join(tree, 'packages'), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.js'))
      .map((path) => [path, built(path)]);
  const before = texts();
  build();
  expect(texts()).toEqual(before);
});

test('the negative of a name, and a negative bigint, are no numbers', () => {
  expect(built('link/dist/negative.js')).not.toContain('NaN');
});

test("a module's own constant is not the one behind its `export *`", () => {
  expect(built('link/dist/user.js')).toContain('=> 1');
});

test('a variable hides what its module exports by the same name', () => {
  expect(built('link/dist/hiding.js')).toContain('[LARGE, sep]');
});
