// A test runner for StrykerJS: the tests of packages/transport in this process (suite.mjs), the quickest first, until one fails.
import { declareFactoryPlugin, PluginKind } from '@stryker-mutator/api/plugin';
import {
  DryRunStatus,
  determineHitLimitReached,
  TestStatus,
  toMutantRunResult,
} from '@stryker-mutator/api/test-runner';
import { bundle, load } from './suite.mjs';

/** Left out, because each mutant in their way would take seconds more: what they find, others find. */
const TOO_SLOW =
  /mutated, forged and random packets|kbps over a second of virtual time, within 5 percent \[2\]/;

/** The values that the instrumented sources share with the runner. */
globalThis.__stryker__ ??= {};
const shared = globalThis.__stryker__;

class InProcessRunner {
  #bundle;
  #tests = [];

  capabilities() {
    return { reloadEnvironment: true };
  }

  async init() {
    this.#bundle = await bundle(process.cwd());
  }

  async #load() {
    this.#tests = (await load(this.#bundle.outfile)).filter(({ id }) => !TOO_SLOW.test(id));
  }

  async dryRun() {
    shared.activeMutant = undefined;
    shared.mutantCoverage = undefined;
    await this.#load();
    const tests = [];
    for (const test of this.#tests) {
      shared.currentTestId = test.id;
      tests.push(await runOne(test));
      shared.currentTestId = undefined;
    }
    return { status: DryRunStatus.Complete, tests, mutantCoverage: shared.mutantCoverage };
  }

  async mutantRun({ testFilter, activeMutant, mutantActivation, hitLimit, reloadEnvironment }) {
    shared.hitCount = 0;
    shared.hitLimit = hitLimit;
    shared.activeMutant = mutantActivation === 'static' ? activeMutant.id : undefined;
    const tests = [];
    try {
      if (reloadEnvironment || this.#tests.length === 0) await this.#load();
      shared.activeMutant = activeMutant.id;
      const wanted = testFilter && new Set(testFilter);
      const chosen = this.#tests.filter(({ id }) => !wanted || wanted.has(id));
      for (const test of chosen.sort((a, b) => (this.#spent.get(a.id) ?? 0) - (this.#spent.get(b.id) ?? 0))) {
        const result = await runOne(test);
        if (result.status === TestStatus.Success) this.#spent.set(test.id, result.timeSpentMs);
        tests.push(result);
        if (result.status !== TestStatus.Success) break;
      }
    } catch (error) {
      // The sources do not even load.
      tests.push(failed({ id: 'load', file: '' }, 0, error));
    }
    shared.activeMutant = undefined;
    const timeout = determineHitLimitReached(shared.hitCount, hitLimit);
    return toMutantRunResult(timeout ?? { status: DryRunStatus.Complete, tests });
  }
  /** Milliseconds that a test took the last time. */
  #spent = new Map();

  async dispose() {
    this.#bundle?.remove();
  }
}

async function runOne(test) {
  const began = performance.now();
  try {
    await test.run();
  } catch (error) {
    return failed(test, performance.now() - began, error);
  }
  return {
    id: test.id,
    name: test.id,
    fileName: test.file,
    timeSpentMs: performance.now() - began,
    status: TestStatus.Success,
  };
}

function failed({ id, file }, timeSpentMs, error) {
  const failureMessage = String(error?.message ?? error).slice(0, 500);
  return { id, name: id, fileName: file, timeSpentMs, status: TestStatus.Failed, failureMessage };
}

const create = () => new InProcessRunner();
export const strykerPlugins = [declareFactoryPlugin(PluginKind.TestRunner, 'in-process', create)];
