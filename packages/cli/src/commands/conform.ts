/** `roce conform`: plays the rules of the conformance tester against a device. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  AGENT_SOURCE,
  type Bench,
  CASE_RULES,
  CaseJudge,
  captureOfCase,
  caseText,
  compare,
  type DeviceInfo,
  isNews,
  isServedBy,
  junit,
  type KnownList,
  LISTS,
  type Link,
  learn,
  modelBench,
  type NamedRule,
  type OpenBench,
  type OpenOptions,
  open,
  type PlainResults,
  parseKnownList,
  parseResults,
  run as play,
  type Result,
  type Rule,
  resultsHtml,
  resultsJson,
  resultText,
  rules,
  totalsText,
  type Via,
} from '@node-roce/conform';
import { UsageError } from '../options.ts';
import type { Terminal } from '../terminal.ts';
import { expectWritable } from '../writable.ts';
import { type CaptureChoices, judge as judgeCaptured, passiveRules } from './conform-capture.ts';
import { listRules } from './conform-list.ts';

interface Given extends CaptureChoices {
  via?: Via;
  link: Link;
  list?: boolean;
  first?: boolean;
  hostile?: boolean;
  slow?: boolean;
  device?: string;
  learn?: string;
  repeat: number;
  port?: number;
  token?: string;
  bind?: string;
  quiet: number;
  patience: number;
  slack: number;
  html?: string;
  compare?: string;
  output?: string;
  printAgent?: boolean;
}

/** The tester could not work. */
const CANNOT = 2;

export async function run([host]: readonly string[], given: Given, terminal: Terminal): Promise<number> {
  if (given.printAgent) {
    terminal.line((await readFile(AGENT_SOURCE, 'utf8')).trimEnd());
    return 0;
  }
  if (given.at !== undefined && given.capture === undefined) throw new UsageError('--at is for --capture');
  if (given.capture !== undefined && !given.list) {
    if (host !== undefined) throw new UsageError('a host, or --capture, not both');
    return judgeCaptured(given.capture, await knownList(given.device), given, terminal);
  }
  const names = given.rule?.split(',').map((each) => each.trim());
  const passiveNames = names?.filter((name) => /^TRC\b/i.test(name));
  const isOfCaptures = names !== undefined && names.length === passiveNames?.length;
  const passive = chosenPassive(passiveNames, given);
  const played = names?.filter((name) => !/^TRC\b/i.test(name));
  const chosen = given.capture !== undefined || isOfCaptures ? [] : chosenRules(given, played);
  if (given.list) {
    listRules(chosen, passive, given, terminal);
    return 0;
  }
  if (isOfCaptures)
    throw new UsageError(
      `${given.rule}: rules about packets need --capture FILE, or rules whose packets they judge (PSN,TRC)`,
    );
  const ofCaptures = passiveNames?.find((name) => isOfCapturesOnly(name));
  if (ofCaptures !== undefined) throw new UsageError(`${ofCaptures}: judges captures only (--capture FILE)`);
  const known = await knownList(given.device);
  const learned = await learnedBefore(given.learn);
  const plan: Plan = { chosen, passive, known, learned, others: await otherResults(given) };
  const { via = 'agent' } = given;
  if (via === 'model') {
    expectWritable(given);
    return judge(plan, modelBench, { name: 'model' }, given, terminal);
  }
  if (!host) throw new UsageError('expected the host of the device, or --via model');
  expectWritable(given);
  return overNetwork(host, via, plan, given, terminal);
}

/** Rules about packets: those that are named; of a whole run all, but none of a run of the basic rules. */
function chosenPassive(names: readonly string[] | undefined, { first }: Given): NamedRule[] {
  if (names === undefined) return first ? [] : passiveRules(undefined);
  return names.length === 0 ? [] : passiveRules(names.join());
}

/** Whether a name is that of a passive rule which does not judge the packets of the other rules. */
const isOfCapturesOnly = (name: string): boolean =>
  name.includes('-') && !CASE_RULES.some(({ id }) => id === name.toUpperCase());

interface Plan {
  chosen: readonly Rule[];
  /** Rules about the packets of the others. */
  passive: readonly NamedRule[];
  known: KnownList | undefined;
  /** The list in the file that --learn writes. */
  learned: KnownList | undefined;
  /** Further columns of the page. */
  others: readonly PlainResults[];
}

/** Results of other devices, for --html. */
async function otherResults({ compare: files, html }: Given): Promise<PlainResults[]> {
  if (files === undefined) return [];
  if (html === undefined) throw new UsageError('--compare needs --html');
  const read = async (file: string) => {
    try {
      return parseResults(await readFile(file, 'utf8'));
    } catch (error) {
      throw new UsageError(`--compare ${file}: ${(error as Error).message}`);
    }
  };
  return Promise.all(files.split(',').map(read));
}

/** Whether a rule is of this way to the device: of a whole run, the others would all be not testable. */
const isOfWay = (each: Rule, { via = 'agent', list, rule }: Given): boolean =>
  list || rule !== undefined || isServedBy(each, via);

/** @param names all rules if it is absent */
function chosenRules(given: Given, names: readonly string[] | undefined): Rule[] {
  const { rule, first, hostile, slow, list } = given;
  const chosen = named(names)
    .filter((each) => isOfWay(each, given))
    .filter((each) => !first || each.first)
    .filter((each) => hostile || list || !each.hostile)
    .filter((each) => slow || list || !each.slow);
  // With exit code 0 they would count as passed.
  if (chosen.length === 0)
    throw new UsageError(
      `no rule to test: ${rule} needs --hostile or --slow, or is not among the --first ones`,
    );
  return chosen;
}

function named(selectors: readonly string[] = []): Rule[] {
  try {
    return rules(...selectors);
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

async function knownList(name: string | undefined): Promise<KnownList | undefined> {
  if (name === undefined) return undefined;
  if (Object.hasOwn(LISTS, name)) return LISTS[name];
  try {
    return parseKnownList(await readFile(name, 'utf8'));
  } catch (error) {
    // Exit code 1 would be a deviation.
    throw new UsageError(`--device ${name}: ${(error as Error).message}`);
  }
}

/** Writes what was learned into the file. A file that is there keeps its name for the device: it may be the user's own, or of another way to the device. */
async function writeLearned(
  file: string,
  played: readonly Result[],
  { name }: DeviceInfo,
  { known, learned }: Plan,
  terminal: Terminal,
): Promise<void> {
  const deviations = { ...known?.deviations, ...learned?.deviations };
  const list = learn(played, name, { ...known, device: name, seen: undefined, ...learned, deviations });
  await writeFile(file, `${JSON.stringify(list, null, 2)}\n`);
  if (list.device !== name)
    terminal.message(
      `roce conform: ${file} is the list of "${list.device}", and keeps this name; the device that was tested is "${name}"`,
    );
}

/** The list that --learn is to write over. */
async function learnedBefore(file: string | undefined): Promise<KnownList | undefined> {
  if (file === undefined) return undefined;
  try {
    return parseKnownList(await readFile(file, 'utf8'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new UsageError(`--learn ${file}: ${(error as Error).message}`);
  }
}

async function overNetwork(
  host: string,
  via: OpenOptions['via'],
  plan: Plan,
  given: Given,
  terminal: Terminal,
): Promise<number> {
  let bench: OpenBench | undefined;
  try {
    bench = await open({ ...given, ...(given.bind !== undefined && { source: given.bind }), via, host });
    return await judge(plan, bench, bench.device.info, given, terminal);
  } catch (error) {
    terminal.message(`roce conform: ${(error as Error).message}`);
    return CANNOT;
  } finally {
    await bench?.close();
  }
}

async function judge(
  plan: Plan,
  bench: Bench | (() => Bench),
  device: DeviceInfo,
  given: Given,
  terminal: Terminal,
): Promise<number> {
  const { chosen, passive, known, others } = plan;
  const { repeat, strict = false, json } = given;
  let count = 0;
  const show = (result: Result, all: readonly Result[] = [result]) => {
    const [shown] = known === undefined ? [result] : compare([result], known, all);
    if (!json) terminal.line(resultText(shown));
  };
  const onResult = (result: Result) => {
    terminal.progress(`${++count} of ${chosen.length}`);
    show(result);
  };
  const { line } = typeof bench === 'function' ? bench() : bench;
  const cases = new CaseJudge(line);
  const onPlayed = (result: Result) => cases.add(result);
  // Those of the list were seen before.
  const confirms = (result: Result) => known === undefined || compare([result], known)[0].verdict !== 'known';
  const options = { onResult, onPlayed, confirms, signal: terminal.signal, repeat };
  const active = await play(chosen, bench, options);
  const asked = given.rule === undefined ? [] : passive;
  const besides = cases.results(asked).filter(({ rule }) => passive.some(({ id }) => id === rule.id));
  const played = [...active, ...besides];
  for (const result of besides) show(result, played);
  const results = known === undefined ? played : compare(played, known);
  if (json) terminal.json(resultsJson(results, device));
  else terminal.line(`\n${device.name}: ${totalsText(results)}`);
  try {
    await write(results, device, given);
    if (given.html) await writeFile(given.html, resultsHtml([resultsJson(results, device), ...others]));
    if (given.learn) await writeLearned(given.learn, played, device, plan, terminal);
  } catch (error) {
    terminal.message(`roce conform: ${(error as Error).message}`);
    return CANNOT;
  }
  const left = chosen.length - active.length;
  if (left > 0) {
    const why = terminal.signal.aborted ? 'interrupted' : 'the agent is gone';
    terminal.message(`roce conform: ${why}: ${left} of ${chosen.length} rules were not played`);
  }
  if (results.some(({ verdict }) => verdict === 'broken') || left > 0) return CANNOT;
  if (results.every(({ verdict }) => verdict === 'not testable')) {
    terminal.message('roce conform: no rule could be tested');
    return CANNOT;
  }
  return results.some((result) => isNews(result, strict)) ? 1 : 0;
}

async function write(results: readonly Result[], device: DeviceInfo, given: Given): Promise<void> {
  if (given.junit) await writeFile(given.junit, junit(results, device, given.strict));
  if (given.output === undefined) return;
  for (const result of results) {
    if (result.verdict === 'pass' || result.verdict === 'not testable') continue;
    await writeFile(join(given.output, `${result.rule.id}.txt`), caseText(result));
    await writeFile(join(given.output, `${result.rule.id}.pcapng`), captureOfCase(result));
  }
}
