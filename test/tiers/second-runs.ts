/**
 * Second runs of CI: a test that fails is played once more, since a machine with other work may spoil one run of a test that waits
 * or measures. Each that passed only then is printed with the failure of its first run, and listed at the end of `.ci/run`.
 */
import { fileURLToPath } from 'node:url';
import type { Reporter, TestCase } from 'vitest/node';

/** Of a message, and of the difference between what was expected and what came. */
const MOST_LINES = 60;
const lines = (text: string) => text.split('\n').slice(0, MOST_LINES);

/** Prints them as lines that step.mjs reads. */
export default class SecondRunsReporter implements Reporter {
  onTestCaseResult(test: TestCase): void {
    if (!test.diagnostic()?.flaky) return;
    const [first] = test.result().errors ?? [];
    const [reason, ...rest] = lines(first?.message ?? 'no reason');
    console.log(`second run: ${test.module.relativeModuleId} > ${test.fullName}: ${reason}`);
    // Nobody can ask the first run again: what a program printed is in the message.
    for (const line of [...rest, ...lines(first?.diff ?? '')]) console.log(line);
  }
}

/** Part of a configuration of vitest. */
export const secondRuns = {
  retry: process.env.CI ? 1 : 0,
  reporters: ['default', fileURLToPath(import.meta.url)],
};
