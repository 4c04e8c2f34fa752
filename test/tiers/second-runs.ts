/**
 * Second runs of CI: a test that fails is played once more, since a machine with other work may spoil one run of a test that waits
 * or measures. Each that passed only then is printed with the failure of its first run, and listed at the end of `.ci/run`.
 */
import { fileURLToPath } from 'node:url';
import type { Reporter, TestCase } from 'vitest/node';

/** Of the difference between what was expected and what came. */
const MOST_LINES = 60;

/** Prints them as lines that step.mjs reads. */
export default class SecondRunsReporter implements Reporter {
  onTestCaseResult(test: TestCase): void {
    if (!test.diagnostic()?.flaky) return;
    const [first] = test.result().errors ?? [];
    const reason = first?.message.split('\n')[0] ?? 'no reason';
    console.log(`second run: ${test.module.relativeModuleId} > ${test.fullName}: ${reason}`);
    // Nobody can ask the first run again.
    if (first?.diff) console.log(first.diff.split('\n').slice(0, MOST_LINES).join('\n'));
  }
}

/** Part of a configuration of vitest. */
export const secondRuns = {
  retry: process.env.CI ? 1 : 0,
  reporters: ['default', fileURLToPath(import.meta.url)],
};
