// The tests that judge mutants of packages/transport: its own, and the scenarios. Packages are taken from their sources, so that
// all of them see the mutants without a build.
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

const root = fileURLToPath(new URL('../..', import.meta.url));
const PACKAGES = ['wire', 'pcap', 'transport', 'link', 'sim'];

export default defineConfig({
  root,
  resolve: {
    alias: PACKAGES.map((name) => ({
      find: new RegExp(`^@node-roce/${name}$`),
      replacement: `${root}packages/${name}/src/index.ts`,
    })),
  },
  test: {
    include: ['packages/transport/src/**/*.test.ts', 'test/sim-scenarios.test.ts'],
    // These take 2^24 packets or thousands of queue pairs: too long for each mutant.
    exclude: ['**/psn-wrap.test.ts', '**/many-queue-pairs.test.ts'],
    testTimeout: 30_000,
  },
});
