/**
 * A setup file of Vitest: fast-check draws the same cases in each run, so that the gate fails only because of the commit. The import
 * of fast-check takes as long as a short test, so only files that use it pay for it.
 */
import { readFileSync } from 'node:fs';
import { expect } from 'vitest';

const { testPath } = expect.getState();
if (testPath !== undefined && readFileSync(testPath, 'utf8').includes("from 'fast-check'")) {
  const { configureGlobal } = await import('fast-check');
  configureGlobal({ seed: 1 });
}
