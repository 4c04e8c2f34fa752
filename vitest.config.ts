import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { configDefaults, defineConfig } from 'vitest/config';
import { ownNamespaces } from './test/tiers/namespaces.ts';
import { secondRuns } from './test/tiers/second-runs.ts';

/** Tests without sockets, timers and processes: their files share workers, which saves a start and the imports of each. */
const PURE = [
  'packages/{wire,pcap,transport,cm,sim,capture,conform}/{src,scenarios}/**/*.test.ts',
  'test/sim/*.test.ts',
  'test/capture/{altered,cm-fixtures,fixtures,review,schema,sim,sim-*,verdicts,wire-fixtures}.test.ts',
  'test/hostile/{decoders,packets}.test.ts',
  'test/conform/engine.test.ts',
  'test/repo/rules.test.ts',
];

/** Files whose programs fetch packages, in the network of the machine. */
const ONLINE = [
  'test/links/arm64.test.ts',
  'test/repo/bundlers.test.ts',
  'test/repo/installed.test.ts',
  'test/repo/site.test.ts',
];

/** Packages whose tests have devices in memory, which they close: those share workers, too. */
const MEMORY = 'packages/{cli,ibverbs,rdmacm,verbs-api}/src/**/!(local-addresses).test.ts'; // It replaces node:os.

/** Files all of whose tests are slow. Vitest would start a worker for each of them, only to leave its tests out. */
function slowFiles(): string[] {
  if (!process.argv.some((argument) => argument.includes('!slow'))) return [];
  const { stdout } = spawnSync('git', ['grep', '-l', '^// @module-tag slow$', '--', '*.test.ts'], {
    cwd: import.meta.dirname,
    encoding: 'utf8',
  });
  return stdout?.split('\n').filter(Boolean) ?? [];
}

// Unit tests are next to the code; what crosses packages is in test/. The interop suite
// (test/interop) wants root and QEMU and has its own config.
export default defineConfig({
  test: {
    pool: ownNamespaces(),
    // One more than there are processors: while a file waits, another one computes.
    maxWorkers: availableParallelism() + 1,
    setupFiles: ['test/tiers/equal-bytes.ts', 'test/tiers/same-cases.ts'],
    // Node imports what is built: Vite would read and transform each file again for each test file.
    server: { deps: { external: [/\/packages\/[^/]+\/dist\//, /\/native\/[^/]+\.js$/] } },
    // Deadlines end what hangs. No verdict is by one: a machine may be slow.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    teardownTimeout: 120_000,
    expect: { poll: { timeout: 120_000, interval: 10 } },
    exclude: [...configDefaults.exclude, ...slowFiles()],
    ...secondRuns,
    tags: [
      { name: 'slow', description: 'Left out of `npm test`; the long tier runs them.' },
      { name: 'gate', description: 'A slow test that stands for its kind: the gate runs it, too.' },
    ],
    projects: [
      { extends: true, test: { name: 'pure', include: PURE, isolate: false } },
      { extends: true, test: { name: 'memory', include: [MEMORY], isolate: false } },
      {
        extends: true,
        test: {
          name: 'rest',
          include: [
            'packages/*/{src,scenarios}/**/*.test.ts',
            'native/test/**/*.test.ts',
            'test/**/*.test.ts',
          ],
          exclude: ['**/node_modules/**', '**/dist/**', 'test/interop/**', ...PURE, MEMORY, ...ONLINE],
        },
      },
      { extends: true, test: { name: 'online', include: ONLINE, pool: 'forks' } },
    ],
  },
});
