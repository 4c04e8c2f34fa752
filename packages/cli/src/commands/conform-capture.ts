/** `roce conform --capture`: the passive rules over a capture, for each host in it. */
import { writeFile } from 'node:fs/promises';
import {
  compare,
  type HostResults,
  isNews,
  judgeCapture,
  junit,
  type KnownList,
  type NamedRule,
  PASSIVE_RULES,
  resultsJson,
  resultText,
  totalsText,
} from '@node-roce/conform';
import { UsageError } from '../options.ts';
import { isFile, pathsOf, readingOptions } from '../reading.ts';
import type { Terminal } from '../terminal.ts';
import { expectWritable } from '../writable.ts';

export interface CaptureChoices {
  capture?: string;
  at?: string;
  rule?: string;
  strict?: boolean;
  junit?: string;
  json: boolean;
}

/** The tester could not work. */
const CANNOT = 2;

/** Options of the rules that are played, without a meaning for a capture. */
const OF_PLAYING = [
  'first',
  'hostile',
  'slow',
  'learn',
  'html',
  'compare',
  'output',
  'token',
  'source',
  'port',
] as const;

/** The passive rules that are named, by rule or area; all of them without names. */
export function passiveRules(selectors: string | undefined): NamedRule[] {
  if (selectors === undefined) return [...PASSIVE_RULES];
  const wanted = selectors.split(',').map((each) => each.trim().toUpperCase());
  const wrong = wanted.find((name) => name !== 'TRC' && !PASSIVE_RULES.some(({ id }) => id === name));
  if (wrong !== undefined)
    throw new UsageError(`no rule ${wrong} about captures: expected one as TRC-01, or TRC for all of them`);
  return PASSIVE_RULES.filter(({ id }) => wanted.includes(id) || wanted.includes('TRC'));
}

/** @param known a list of deviations, for all hosts */
export async function judge(
  capture: string,
  known: KnownList | undefined,
  given: CaptureChoices & Partial<Record<(typeof OF_PLAYING)[number], unknown>>,
  terminal: Terminal,
): Promise<number> {
  const useless = OF_PLAYING.find((name) => given[name] !== undefined && given[name] !== false);
  if (useless !== undefined) throw new UsageError(`--${useless} is not for --capture`);
  const rules = passiveRules(given.rule);
  const files = filesOf(capture);
  const pipe = files.find((file) => !isFile(file));
  if (pipe !== undefined) throw new UsageError(`${pipe}: --capture reads a capture twice; expected a file`);
  expectWritable({ junit: given.junit });
  const judgement = await judgeOf(files, { at: given.at, rules }, terminal);
  const hosts = judgement.hosts.map(({ host, results }) => ({
    host,
    results: known === undefined ? results : compare(results, known),
  }));
  if (given.json) terminal.json({ capture: files, hosts: hosts.map(jsonOf) });
  else print(hosts, terminal);
  if (given.junit !== undefined && !(await written(given.junit, hosts, given.strict, terminal)))
    return CANNOT;
  if (judgement.damage !== undefined) {
    terminal.message(`roce conform: ${judgement.damage}`);
    return CANNOT;
  }
  const all = hosts.flatMap(({ results }) => results);
  if (all.every(({ verdict }) => verdict === 'not testable')) {
    const why =
      judgement.connections === 0 ? 'no reliable connection in the capture' : 'no rule could be tested';
    terminal.message(`roce conform: ${why}`);
    return CANNOT;
  }
  return all.some((result) => isNews(result, given.strict)) ? 1 : 0;
}

function filesOf(capture: string): string[] {
  try {
    return pathsOf(capture.split(','));
  } catch (error) {
    throw error instanceof UsageError ? error : new UsageError(`--capture: ${(error as Error).message}`);
  }
}

async function judgeOf(
  files: readonly string[],
  options: { at: string | undefined; rules: readonly NamedRule[] },
  terminal: Terminal,
) {
  try {
    return await judgeCapture(files, { ...(await readingOptions(terminal)), ...options });
  } catch (error) {
    // Exit code 1 would be a deviation.
    if (terminal.signal.aborted) throw error;
    throw new UsageError(`--capture ${files.join(',')}: ${(error as Error).message}`);
  }
}

const jsonOf = ({ host, results }: HostResults) => resultsJson(results, { name: host });

function print(hosts: readonly HostResults[], terminal: Terminal): void {
  for (const { host, results } of hosts) {
    terminal.line(`${host}`);
    for (const result of results) terminal.line(resultText(result));
    terminal.line(`${host}: ${totalsText(results)}\n`);
  }
}

/** One suite a host. */
async function written(
  file: string,
  hosts: readonly HostResults[],
  strict: boolean | undefined,
  terminal: Terminal,
): Promise<boolean> {
  const suites = hosts.map(({ host, results }) =>
    junit(results, { name: host }, strict).replace(/^<\?xml.*\n/, ''),
  );
  try {
    await writeFile(
      file,
      `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n${suites.join('')}</testsuites>\n`,
    );
    return true;
  } catch (error) {
    terminal.message(`roce conform: ${(error as Error).message}`);
    return false;
  }
}
