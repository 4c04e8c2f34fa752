import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { PATIENCE } from '../tiers/patience.mjs';
import { secondRuns } from '../tiers/second-runs.ts';
import { isFixedSample, SAMPLE } from './harness/sample.ts';
import { HOST_PROGRAMS } from './host-programs.mjs';

// Run by run.mjs, inside of a network namespace. One guest serves all files, so they run one by one. Files in which no
// guest has a part run with the default one alone.
const debian13 = process.env.ROCE_GUEST === 'debian13';
const leftOut = debian13 ? ['no-guest/**'] : [];
// FLUSH and ATOMIC_WRITE: rxe of Linux 6.1 has neither.
if (!debian13) leftOut.push('placement.test.ts');
if (!process.env.ROCE_GUEST_UM) leftOut.push('um.test.ts');
// They mount the file system of this machine, and run.mjs installs programs there.
if (!process.env.ROCE_GUEST_UM || isFixedSample) leftOut.push(...HOST_PROGRAMS);
// Minutes of losses: in a sample by a seed, each with one of the guests.
if (SAMPLE && !isFixedSample) leftOut.push(debian13 ? 'recovery.test.ts' : 'cm-loss.test.ts');

export default defineConfig({
  test: {
    root: fileURLToPath(new URL('.', import.meta.url)),
    include: ['**/*.test.ts'],
    exclude: leftOut,
    globalSetup: ['./harness/global.ts'],
    pool: 'forks',
    fileParallelism: false,
    ...secondRuns,
    testTimeout: 120_000 * PATIENCE,
    hookTimeout: 120_000 * PATIENCE,
  },
});
