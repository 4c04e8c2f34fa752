#!/usr/bin/env node
// Runs a seed of test/sim/random.test.ts again and leaves a capture of it:
//   node packages/sim/bin/replay.js SEED A B NETWORK LOSS COUNT
// with the values that a failure prints, by commas or spaces.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const run = process.argv.slice(2).join(',');
if (run.split(',').length !== 6) {
  console.error('usage: replay SEED engine|model engine|model NETWORK LOSS COUNT');
  process.exit(2);
}
const root = fileURLToPath(new URL('../../..', import.meta.url));
const { status } = spawnSync('npx', ['vitest', 'run', 'test/sim/random.test.ts', '-t', 'again'], {
  cwd: root,
  env: { ...process.env, ROCE_SIM: run },
  stdio: 'inherit',
});
process.exit(status ?? 1);
