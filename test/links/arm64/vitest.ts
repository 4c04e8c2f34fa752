/**
 * Stands for `vitest` where tests run on arm64: its runner and its matchers, which are plain JavaScript. The rest of vitest has parts for
 * one kind of machine, and starts programs, which QEMU's user emulation does not.
 */
import { chai, JestAsymmetricMatchers, JestChaiExpect, JestExtend } from '@vitest/expect';
import { type File, startTests, type Task, type VitestRunner } from '@vitest/runner';

export * from '@vitest/runner';

for (const plugin of [JestExtend, JestChaiExpect, JestAsymmetricMatchers]) chai.use(plugin);
export const { expect } = chai;

const TIMEOUT = 1_800_000; // Emulated, an instruction takes some fifteen times as long, and a busy machine adds to that.

const CONFIG = {
  root: '.',
  setupFiles: [],
  testTimeout: TIMEOUT,
  hookTimeout: TIMEOUT,
  retry: 0,
  maxConcurrency: 1,
  sequence: { seed: 0, hooks: 'stack', setupFiles: 'list' },
};

/** Runs a file's tests, but for one, and prints a line for each, with the errors of those that fail. */
export async function runFile(name: string, load: () => Promise<unknown>, leftOut: string): Promise<void> {
  const testNamePattern = new RegExp(`^(?!.*${leftOut}$)`);
  const config = { ...CONFIG, testNamePattern } as unknown as VitestRunner['config'];
  const files = await startTests([name], { config, importFile: load });
  for (const task of files.flatMap(testsOf)) {
    console.log(`${task.result?.state ?? task.mode} ${name} › ${task.name}`);
    for (const error of task.result?.errors ?? []) console.log(error.stack ?? error.message);
  }
  if (files.some((file) => file.result?.state !== 'pass')) process.exitCode = 1;
}

const testsOf = (task: File | Task): Task[] => ('tasks' in task ? task.tasks.flatMap(testsOf) : [task]);
