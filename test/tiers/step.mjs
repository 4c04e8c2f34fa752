/** Runs one step: a command within a budget of time, its output shown and its tests counted. */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { processorGroup } from './processors.mjs';

/** ms between asking the processes of a step to end and ending them. */
const GRACE = 20_000;

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what a terminal's colors are made of.
const COLORS = /\u001b\[[0-9;]*m/g;
/** vitest's summary: "Tests  2 failed | 11 passed (13)". */
const SUMMARY = /^ *Tests {2}(.*\(\d+\))$/;
/** A test that failed, was played once more, and passed (second-runs.ts). */
const SECOND_RUN = /^second run: (.+)$/;
/** The last line of a step's own shell. */
const PROCESSORS = /^== processors: ([\d.]+) s user, ([\d.]+) s system$/;

/**
 * The parts of a line of output that count in a step's result.
 * @returns {{ passed?: number, failed?: number, skipped?: number, result?: string, secondRun?: string, processorSeconds?: number }}
 */
export function readLine(line) {
  const text = line.replace(COLORS, '');
  const result = /^result: (.+)$/.exec(text)?.[1];
  if (result !== undefined) return { result };
  const secondRun = SECOND_RUN.exec(text)?.[1];
  if (secondRun !== undefined) return { secondRun };
  const processors = PROCESSORS.exec(text);
  if (processors) return { processorSeconds: Number(processors[1]) + Number(processors[2]) };
  const counts = SUMMARY.exec(text)?.[1] ?? '';
  return Object.fromEntries(
    [...counts.matchAll(/(\d+) (passed|failed|skipped)/g)].map(([, count, what]) => [what, Number(count)]),
  );
}

/**
 * Runs a step of steps.mjs.
 *
 * @param {{ command: string, minutes: number, env?: object }} step
 * @param {{ cwd: string, write?: (line: string) => void, groups?: string }} options `groups`: the root of the file systems of control
 *   groups
 * @returns {Promise<{ verdict: string, seconds: number, processorSeconds: number, passed: number, failed: number,
 *   secondRuns: string[], result?: string }>} `verdict` is "passed", or the reason why the step failed; `processorSeconds` is the time
 *   of its processors; `secondRuns` are the tests that passed by a second run.
 */
export async function runStep({ command, minutes, env = {} }, { cwd, write = console.log, groups }) {
  const started = performance.now();
  // The time of its processors distinguishes a slow step from a busy machine.
  const group = processorGroup(groups);
  const joined = group && `echo $$ > ${group.processes}; `;
  // Without a control group, the shell's own figure. It lacks what ended with its namespace, and so most of a step of tests.
  const timed = group
    ? `${joined}${command}\n`
    : `TIMEFORMAT='== processors: %U s user, %S s system'; time { ${command}\n}`;
  // A process group of its own: what the command started ends with it.
  const child = spawn('bash', ['-c', timed], {
    cwd,
    detached: true,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const signalGroup = (signal) => {
    try {
      process.kill(-child.pid, signal);
    } catch {
      // All of it has ended.
    }
  };
  let late = false;
  const budget = setTimeout(() => {
    late = true;
    signalGroup('SIGTERM');
    setTimeout(() => signalGroup('SIGKILL'), GRACE).unref();
  }, minutes * 60_000);
  const interrupt = () => {
    signalGroup('SIGTERM');
    setTimeout(() => process.exit(130), 1000);
  };
  process.on('SIGINT', interrupt).on('SIGTERM', interrupt);

  const total = { passed: 0, failed: 0, processorSeconds: 0, secondRuns: [], result: undefined };
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on('line', (line) => {
      const { passed = 0, failed = 0, processorSeconds = 0, secondRun, result } = readLine(line);
      total.passed += passed;
      total.failed += failed;
      total.processorSeconds += processorSeconds;
      if (secondRun !== undefined) total.secondRuns.push(secondRun);
      total.result = result ?? total.result;
      write(line);
    });
  }
  const code = await new Promise((resolve) => child.on('close', resolve));
  clearTimeout(budget);
  process.off('SIGINT', interrupt).off('SIGTERM', interrupt);
  total.processorSeconds = group?.end() ?? total.processorSeconds;
  const seconds = (performance.now() - started) / 1000;
  let verdict = 'passed';
  if (late) verdict = `FAILED: over its budget of ${minutes} min`;
  else if (code !== 0) verdict = `FAILED: exit code ${code ?? 'none'}`;
  return { verdict, seconds, ...total };
}
