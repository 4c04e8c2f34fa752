// The tests that judge mutants of packages/transport, bundled into one module and run in this process: thousands of runs of 600
// tests are affordable so. vitest itself runs the same files in `npm test`.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const HERE = fileURLToPath(new URL('.', import.meta.url));
/** The repository that this file is of. */
const HOME = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');
const PACKAGES = ['wire', 'pcap', 'transport', 'link', 'sim'];
/** These take 2^24 packets or thousands of queue pairs: too long for each mutant. */
const TOO_LONG = /\/(psn-wrap|many-queue-pairs)\.test\.ts$/;

/** The test files under `root`: the package's own, and with `scenarios` those of the simulator. */
export function testFiles(root, { scenarios = true } = {}) {
  const source = join(root, 'packages/transport/src');
  const own = readdirSync(source, { recursive: true })
    .map((name) => join(source, name))
    .filter((path) => path.endsWith('.test.ts') && !TOO_LONG.test(path))
    .sort();
  return scenarios ? [...own, join(root, 'test/sim-scenarios.test.ts')] : own;
}

/**
 * Bundles the tests with the sources under `root`.
 * @param change path → text to put in place of the file's own, or undefined
 * @returns the file of the bundle; `remove()` deletes it
 */
export async function bundle(root, { files = testFiles(root), change = () => undefined } = {}) {
  const require = createRequire(join(HOME, 'packages/capture/package.json'));
  const { build } = require('esbuild');
  const vitest = createRequire(createRequire(join(HOME, 'package.json')).resolve('vitest'));
  const folder = mkdtempSync(join(tmpdir(), 'roce-mutation-'));
  const outfile = join(folder, 'tests.mjs');
  const imports = files.map(
    (path) => `beginFile(${JSON.stringify(relative(root, path))}); await import(${JSON.stringify(path)});`,
  );
  await build({
    stdin: {
      contents: `import { beginFile, tests } from 'vitest';\n${imports.join('\n')}\nexport { tests };`,
      resolveDir: root,
    },
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    outfile,
    logLevel: 'error',
    banner: {
      js: "import { createRequire as __r } from 'node:module'; const require = __r(import.meta.url);",
    },
    plugins: [
      {
        name: 'mutation',
        setup({ onResolve, onLoad, resolve }) {
          onResolve({ filter: /^vitest$/ }, () => ({ path: join(HERE, 'vitest-shim.mjs') }));
          onResolve({ filter: /^(@vitest\/(expect|spy)|chai)$/ }, ({ path }) => ({
            path: pathToFileURL(resolveModule(vitest, path)).href,
            external: true,
          }));
          onResolve({ filter: /^@node-roce\// }, ({ path }) => {
            const [name, ...folder] = path.slice('@node-roce/'.length).split('/');
            if (!PACKAGES.includes(name)) return undefined;
            return { path: join(root, `packages/${name}/src`, ...folder, 'index.ts') };
          });
          // A copy of the sources has no dependencies of its own.
          onResolve({ filter: /^[a-z@]/ }, ({ path, kind, resolveDir, pluginData }) => {
            if (root === HOME || pluginData === 'at home') return undefined;
            return resolve(path, { kind, resolveDir: resolveDir.replace(root, HOME), pluginData: 'at home' });
          });
          onLoad({ filter: /packages\/transport\/src\/.*\.ts$/ }, ({ path }) => {
            const contents = change(path);
            return contents === undefined ? undefined : { contents, loader: 'ts' };
          });
        },
      },
    ],
  });
  return { outfile, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

/** A dependency of vitest's, or of one of its dependencies. */
function resolveModule(require, name) {
  try {
    return esmOf(require, name);
  } catch {
    return esmOf(createRequire(esmOf(require, '@vitest/expect')), name);
  }
}

function esmOf(require, name) {
  const paths = require.resolve.paths(name) ?? [];
  for (const folder of paths) {
    try {
      const at = join(folder, name);
      const { exports, main } = JSON.parse(readFileSync(join(at, 'package.json'), 'utf8'));
      const entry = exports?.['.']?.default ?? exports?.['.']?.import ?? exports?.['.'] ?? main;
      return join(at, typeof entry === 'string' ? entry : entry.default);
    } catch {
      // The next folder.
    }
  }
  throw new Error(`no ${name} is installed`);
}

let loads = 0;
/** Loads the bundle anew: its tests, with sources in their first state. */
export async function load(outfile) {
  const { tests } = await import(`${pathToFileURL(outfile).href}?load=${loads++}`);
  return tests;
}

/** Runs tests until the first that fails. */
export async function runAll(tests, onTest = () => {}) {
  for (const test of tests) {
    const began = performance.now();
    let error;
    try {
      await test.run();
    } catch (thrown) {
      error = thrown ?? new Error('thrown');
    }
    if (onTest(test, performance.now() - began, error) === false) return;
  }
}
