import { defineConfig } from 'vitest/config';

// Unit tests stand beside the code; what crosses packages stands in test/. The interop suite
// (test/interop) wants root and QEMU and has its own config.
export default defineConfig({
  test: {
    include: ['packages/*/src/**/*.test.ts', 'native/test/**/*.test.ts', 'test/**/*.test.ts'],
    exclude: ['**/node_modules/**', '**/dist/**', 'test/interop/**'],
    pool: 'forks',
    testTimeout: 30_000,
  },
});
