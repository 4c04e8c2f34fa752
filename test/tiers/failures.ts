/** A reporter of Vitest that appends each failure to the file ROCE_FAILURES, one object of JSON a line; steady.mjs reads them. */
import { appendFileSync } from 'node:fs';
import type { UserConsoleLog } from 'vitest';
import type { Reporter, TestCase, TestModule, TestSuite } from 'vitest/node';

type Errors = readonly { message: string; stack?: string }[] | undefined;

export default class FailuresReporter implements Reporter {
  readonly #output = new Map<string, string>();

  onUserConsoleLog({ taskId = '', content }: UserConsoleLog): void {
    this.#output.set(taskId, (this.#output.get(taskId) ?? '') + content);
  }

  onTestCaseResult(test: TestCase): void {
    const { state, errors } = test.result();
    if (state === 'failed')
      this.#write(`${test.module.relativeModuleId} > ${test.fullName}`, errors, this.#output.get(test.id));
    this.#output.delete(test.id);
  }

  onTestSuiteResult(suite: TestSuite): void {
    const name = `${suite.module.relativeModuleId} > ${suite.fullName}: a hook`;
    if (suite.errors().length > 0) this.#write(name, suite.errors());
  }

  onTestModuleEnd(module: TestModule): void {
    if (module.errors().length > 0) this.#write(module.relativeModuleId, module.errors());
  }

  onTestRunEnd(_modules: unknown, errors: Errors): void {
    for (const error of errors ?? []) this.#write('no test', [error]);
  }

  #write(name: string, errors: Errors, output = ''): void {
    const reasons = (errors ?? []).map(({ message, stack }) => (stack?.includes(message) ? stack : message));
    appendFileSync(process.env.ROCE_FAILURES!, `${JSON.stringify({ name, reasons, output })}\n`);
  }
}
