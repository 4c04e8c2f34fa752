// The lanes of a run of the suite: runs of vitest side by side, each in namespaces of its own with a part of the files; their counts as one.
import { existsSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { controlFilters } from './control.mjs';
import { spawnInNamespaces } from './namespaces.mjs';

/** Samples that are always the same. They wait longer for whatever they wait for: a busy machine makes them slow, and not fail. */
export const FIXED = ['gate', 'control'];
const FIXED_PATIENCE = '5';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '../..');

/**
 * Runs one lane of the suite in namespaces of its own; resolves to vitest's exit code, not 0 if a signal ended it. The first lane
 * writes to our output, each other one to `output` in its directory.
 */
function runLane(lane, { options, image, um, logs }, { directory, report, output }) {
  const { guest, sample, shell, lanes, filters } = options;
  const vitest = join(root, 'node_modules/vitest/vitest.mjs');
  const args = [
    [vitest, 'run', '--config', join(here, 'vitest.config.ts')],
    ['--reporter=verbose', '--reporter=json', `--outputFile.json=${report}`],
    `--reporter=${join(root, 'test/tiers/second-runs.ts')}`,
    lanes > 1 ? [`--shard=${lane}/${lanes}`] : [],
    sample === 'control' && filters.length === 0 ? controlFilters(guest) : filters,
  ].flat();
  const log = lane > 1 && openSync(output, 'w');
  const { pid, done } = spawnInNamespaces(process.execPath, args, {
    cwd: root,
    stdio: lane > 1 ? ['ignore', log, log] : 'inherit',
    env: {
      ...process.env,
      TMPDIR: directory,
      ROCE_GUEST: guest,
      ROCE_GUEST_IMAGE: image,
      ROCE_GUEST_UM: um,
      ROCE_GUEST_STARTS: join(directory, 'starts'),
      ROCE_SAMPLE: sample,
      ROCE_GUEST_SHELL: shell,
      ROCE_INTEROP_LOGS: lanes > 1 ? join(logs, `lane-${lane}`) : logs,
      ROCE_PATIENCE: process.env.ROCE_PATIENCE ?? (FIXED.includes(sample) ? FIXED_PATIENCE : ''),
    },
  });
  if (shell)
    console.error(`a program in the network of the guests: nsenter --net=/proc/${pid}/ns/net PROGRAM`);
  return done;
}

/**
 * Runs all lanes side by side. The lines of one are not mixed with another's.
 *
 * @param {object} run
 * @param {object} run.options of options.mjs
 * @param {string} run.image of the guest
 * @param {string} run.um the kernel for User-Mode Linux, or ''
 * @param {string} run.scratch a directory that is there for this run
 * @param {string} run.logs the directory for consoles, commands and captures
 */
export async function runLanes(run) {
  const all = Array.from({ length: run.options.lanes }, (_, i) => {
    const directory = join(run.scratch, `lane-${i + 1}`);
    mkdirSync(directory, { mode: 0o755 });
    const lane = { directory, report: join(directory, 'report.json'), output: join(directory, 'output') };
    return { ...lane, done: runLane(i + 1, run, lane) };
  });
  const codes = [];
  for (const [i, { done, output }] of all.entries()) {
    codes.push(await done);
    if (i > 0) process.stdout.write(readFileSync(output));
  }
  return {
    code: Math.max(...codes),
    counts: sumOf(all.map(({ report }) => countsOf(report))),
    how: accelerators(all),
  };
}

/** How the guests ran, in the words of ROCE_GUEST_ACCEL. */
function accelerators(lanes) {
  const files = lanes.map(({ directory }) => join(directory, 'starts')).filter(existsSync);
  const names = files.flatMap((file) => readFileSync(file, 'utf8').trim().split('\n'));
  return [...new Set(names)].join(' and ') || 'no guest';
}

/** vitest's counts; none at all when it wrote no report. */
function countsOf(report) {
  const none = { numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0, testResults: [] };
  return existsSync(report) ? { ...none, ...JSON.parse(readFileSync(report, 'utf8')) } : none;
}

/** The counts of all lanes as those of one. */
function sumOf(lanes) {
  const sum = (key) => lanes.reduce((total, counts) => total + counts[key], 0);
  return {
    passed: sum('numPassedTests'),
    failed: sum('numFailedTests'),
    skipped: sum('numPendingTests') + sum('numTodoTests'),
    everyLaneRan: lanes.every(({ numPassedTests }) => numPassedTests > 0),
    testResults: lanes.flatMap(({ testResults }) => testResults),
  };
}
