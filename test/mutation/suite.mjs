// The tests that judge mutants of packages/transport, bundled into one module and run in this process: thousands of runs of 600
// tests are affordable so. vitest itself runs the same files in `npm test`.
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Script } from 'node:vm';
import { hashOf } from './results.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
/** The repository that this file is of. */
const HOME = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '');
const PACKAGES = ['wire', 'pcap', 'transport', 'link', 'sim'];
/** These take 2^24 packets or thousands of queue pairs: too long for each mutant. */
const TOO_LONG = /\/(psn-wrap|many-queue-pairs)\.test\.ts$/;
/** One starts a process with what is built, which has no mutant; the other compares names of classes, which the bundle changes. */
const OF_OTHERS = /\/(unboxed|errors)\.test\.ts$/;

/** The simulator's suites that judge, too: a few fixed seeds of each, by the environment that the suite reads. */
const SCENARIOS = {
  'sim/scenarios': {},
  'sim/differential': { ROCE_SIM_SEEDS: 30 },
  'sim/differential-services': { ROCE_SIM_SEEDS: 12 },
  'sim/duplicates': { ROCE_SIM_SEEDS: 4 },
  'sim/random': { ROCE_SIM_SEEDS: 1, ROCE_SIM_COUNT: 40 },
};

/** The test files under `root`, with the environment of each: the package's own, and with `scenarios` those of the simulator. */
export function testFiles(root, { scenarios = true } = {}) {
  const own = ['src', 'scenarios']
    .map((folder) => join(root, 'packages/transport', folder))
    .flatMap((folder) => readdirSync(folder, { recursive: true }).map((name) => join(folder, name)))
    .filter((path) => path.endsWith('.test.ts') && !TOO_LONG.test(path) && !OF_OTHERS.test(path))
    .sort()
    .map((path) => ({ path, env: {} }));
  const simulated = Object.entries(SCENARIOS).map(([name, env]) => ({
    path: join(root, `test/${name}.test.ts`),
    env,
  }));
  return scenarios ? [...own, ...simulated] : own;
}

/**
 * Bundles the tests with the sources under `root`.
 * @param change path → text to put in place of the file's own, or undefined
 * @returns the bundle, for `load`; `hash` distinguishes it from others
 */
export async function bundle(root, { files = testFiles(root), change = () => undefined } = {}) {
  const { build } = createRequire(join(HOME, 'packages/capture/package.json'))('esbuild');
  const parts = files.map(({ path, env }) => {
    const name = JSON.stringify(relative(root, path));
    return `beginFile(${name}, ${JSON.stringify(env)}); require(${JSON.stringify(path)});`;
  });
  const { outputFiles } = await build({
    stdin: {
      contents: [
        "import fc from 'fast-check';",
        "import { beginFile, tests } from 'vitest';",
        // The same cases in each run, and no search for the smallest that fails.
        'fc.configureGlobal({ seed: 1, endOnFailure: true });',
        ...parts,
        'export { tests };',
      ].join('\n'),
      resolveDir: root,
    },
    bundle: true,
    write: false,
    platform: 'node',
    format: 'cjs',
    target: 'node20',
    logLevel: 'error',
    plugins: [
      {
        name: 'mutation',
        setup({ onResolve, onLoad, resolve }) {
          onResolve({ filter: /^vitest$/ }, () => ({ path: join(HERE, 'vitest-shim.mjs') }));
          onResolve({ filter: /^(@vitest\/(expect|spy)|chai)$/ }, () => ({ external: true }));
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
  const { text } = outputFiles[0];
  const script = new Script(`(function (module, exports, require) {${text}\n})`);
  return Object.assign(script, { hash: hashOf(text) });
}

const require = createRequire(join(HOME, 'package.json'));
/** vitest's own parts, which its dependencies bring. */
const vitest = createRequire(require.resolve('vitest'));
const shared = new Map();
for (const name of ['@vitest/expect', '@vitest/spy', 'chai']) {
  shared.set(name, await import(pathToFileURL(resolveModule(vitest, name)).href));
}
const requireShared = (name) => shared.get(name) ?? require(name);

/** Tests that compare times: other work of the machine can fail them, which proves nothing about a mutant. */
const BY_THE_CLOCK = /is destroyed as quickly/;

/** Loads a bundle anew: its tests, with sources in their first state. */
export function load(script) {
  const module = { exports: {} };
  const define = script.runInThisContext();
  callWithin(() => define(module, module.exports, requireShared), LOAD_PATIENCE);
  return module.exports.tests.filter(({ id }) => !BY_THE_CLOCK.test(id));
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

/** So long may loading take, which runs the bodies of `describe`, ms. */
const LOAD_PATIENCE = 8000;
/** A test hangs after so many ms, or so many times its earlier duration. */
const PATIENCE = 1000;
const PATIENCE_FACTOR = 20;

/** A test's part of the deaths is a mean over the last mutants; below some part it is like others. */
const RECENT = 0.05;
const UNLIKELY = 0.005;

/** Time limit of a test that was never run before, ms. */
const PATIENCE_AT_FIRST = 60_000;

/** Runs tests one after another; remembers the time of each and those that found a fault, to begin with them. */
export class Runner {
  /** By a test's id: ms that it took when it passed. */
  #spent = new Map();
  /** By a test's id: the part of the last mutants that it killed. */
  #kills = new Map();

  /** Returns the memory, to be restored in another process. */
  memory() {
    return { spent: [...this.#spent], kills: [...this.#kills] };
  }

  restore({ spent, kills }) {
    this.#spent = new Map(spent);
    this.#kills = new Map(kills);
  }

  /**
   * The tests in the order to run them: those that found others lately, by how likely they are to find this one for the time that
   * they take; then the quickest of each file, the second quickest of each, and so on.
   */
  #sorted(tests) {
    const spent = ({ id }) => this.#spent.get(id) ?? 0;
    const worth = (test) => {
      const kills = this.#kills.get(test.id) ?? 0;
      return kills < UNLIKELY ? 0 : kills / (spent(test) + 0.2);
    };
    const places = new Map();
    return [...tests]
      .sort((a, b) => spent(a) - spent(b))
      .map((test) => {
        const place = places.get(test.file) ?? 0;
        places.set(test.file, place + 1);
        return { test, place, value: worth(test) };
      })
      .sort((a, b) => b.value - a.value || a.place - b.place);
  }

  #killed(killer) {
    for (const [id, part] of this.#kills) this.#kills.set(id, part * (1 - RECENT));
    this.#kills.set(killer, (this.#kills.get(killer) ?? 0) + RECENT);
  }

  /**
   * Runs the tests until one fails, or they have taken `patience` ms of processor time.
   * @returns that one, the error, and whether it hung; undefined if none does
   */
  async firstFailure(tests, patience = Number.POSITIVE_INFINITY) {
    const began = process.cpuUsage();
    for (const { test } of this.#sorted(tests)) {
      const { error, hung } = await this.run(test);
      if (error !== undefined) {
        this.#killed(test.id);
        return { test, error, hung };
      }
      const { user, system } = process.cpuUsage(began);
      if (user + system > 1000 * patience) return undefined;
    }
    return undefined;
  }

  /** Runs a test. @returns ms, and what it threw */
  async run(test) {
    const spent = this.#spent.get(test.id);
    const patience = spent === undefined ? PATIENCE_AT_FIRST : PATIENCE + PATIENCE_FACTOR * Math.ceil(spent);
    const began = performance.now();
    try {
      await callWithin(test.run, patience, test.restore);
    } catch (thrown) {
      const hung = thrown?.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT';
      return { ms: performance.now() - began, error: thrown ?? new Error('thrown'), hung };
    }
    const ms = performance.now() - began;
    this.#spent.set(test.id, ms);
    return { ms, error: undefined, hung: false };
  }
}

const call = new Script('globalThis.__call()');

/**
 * Calls a function, but for no longer than `patience` ms of wall clock and half of that of processor time.
 * @param restore called where it was ended, also before it is called again
 */
function callWithin(body, patience, restore = () => {}) {
  let result;
  globalThis.__call = () => {
    result = body();
  };
  for (let timeout = patience; ; timeout *= 4) {
    const before = process.cpuUsage();
    try {
      call.runInThisContext({ timeout });
      return result;
    } catch (error) {
      if (error.code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error;
      const { user, system } = process.cpuUsage(before);
      restore();
      // The machine had other work: once more.
      if (user + system >= 500 * patience) throw error;
    }
  }
}
