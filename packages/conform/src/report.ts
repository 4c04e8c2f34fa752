/** Results as text, as JSON and as JUnit's XML. */
import type { DeviceInfo } from './device.ts';
import { isNews } from './known.ts';
import type { NamedRule } from './rule.ts';
import type { Result, Verdict } from './run.ts';

const VERDICTS: readonly Verdict[] = [
  'pass',
  'deviation',
  'known',
  'changed',
  'mended',
  'not testable',
  'broken',
  'unsteady',
];

/** A line for a rule, and one for each reason and note. */
export function resultText({ rule, verdict, why, notes }: Result): string {
  const indent = ' '.repeat(14);
  const disputed = rule.should && verdict !== 'pass' ? '; should' : '';
  const lines = [`${verdict.padEnd(14)}${rule.id}  ${rule.title}  (${rule.section}${disputed})`];
  lines.push(...why.map((reason) => `${indent}${reason}`), ...notes.map((note) => `${indent}note: ${note}`));
  return lines.join('\n');
}

/** `3 rules`. */
const counted = (n: number, what: string): string => `${n} ${what}${n === 1 ? '' : 's'}`;

/** `40 rules and 2 passive checks: 40 pass, 1 known, 1 not testable`. */
export function totalsText(results: readonly Result[]): string {
  const counts = VERDICTS.map(
    (verdict) => [verdict, results.filter((r) => r.verdict === verdict).length] as const,
  );
  const shown = counts.filter(([, count]) => count > 0).map(([verdict, count]) => `${count} ${verdict}`);
  const checks = results.filter(({ rule }) => rule.needs.includes('capture')).length;
  const rules = results.length - checks;
  const parts = [
    ...(rules > 0 || checks === 0 ? [counted(rules, 'rule')] : []),
    ...(checks > 0 ? [counted(checks, 'passive check')] : []),
  ];
  return [parts.join(' and '), ...(shown.length > 0 ? [shown.join(', ')] : [])].join(': ');
}

/** A rule and, if it was not passed, everything that is known of the case, with the packets. */
export function caseText(result: Result): string {
  const { rule, ladder } = result;
  return `${resultText(result)}\n\n${rule.text}\n\n${ladder}\n`;
}

/** The description of a rule. */
export function ruleText({ id, title, section, needs, should, hostile, slow, text }: NamedRule): string {
  const marks = [
    should ? 'should' : 'must',
    ...(hostile ? ['hostile'] : []),
    ...(slow ? ['slow'] : []),
    `needs ${needs.join(', ')}`,
  ];
  return `${id}  ${title}\n        ${section}; ${marks.join('; ')}\n        ${text}`;
}

/** A result as a plain value. */
export interface PlainResult {
  id: string;
  title: string;
  section: string;
  severity: string;
  verdict: string;
  why: readonly string[];
  notes: readonly string[];
  milliseconds: number;
  /** Packets, if there are any. */
  ladder?: string;
}

/** Results as `--json` prints them. */
export interface PlainResults {
  device: DeviceInfo;
  results: PlainResult[];
}

/** The results in a file's text. @throws TypeError for other text */
export function parseResults(text: string): PlainResults {
  const value = JSON.parse(text) as Partial<PlainResults> | null;
  const isResult = (each: Partial<PlainResult> | null) =>
    [each?.id, each?.title, each?.section, each?.severity, each?.verdict].every(
      (v) => typeof v === 'string',
    ) &&
    Array.isArray(each?.why) &&
    Array.isArray(each?.notes);
  const { device, results } = value ?? {};
  if (typeof device?.name !== 'string' || !Array.isArray(results) || !results.every(isResult))
    throw new TypeError('no results: expected a file that --json wrote');
  return value as PlainResults;
}

/** Plain values for JSON. */
export function resultsJson(results: readonly Result[], device: DeviceInfo): PlainResults {
  return {
    device,
    results: results.map(({ rule, verdict, why, notes, time, ladder }) => ({
      id: rule.id,
      title: rule.title,
      section: rule.section,
      severity: rule.should ? 'should' : 'must',
      verdict,
      why,
      notes,
      milliseconds: Math.round(time),
      ...(ladder === '' ? {} : { ladder }),
    })),
  };
}

const xml = (text: string): string =>
  text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`).replace(/[^\t\n\x20-\uffff]/g, '?');

/** JUnit's XML: a deviation is a failure, a broken case an error; known and not testable ones are skipped. */
export function junit(results: readonly Result[], device: DeviceInfo, strict = false): string {
  const cases = results.map((result) => {
    const { rule, verdict, why, time } = result;
    const head = `<testcase classname="${xml(device.name)}" name="${xml(`${rule.id} ${rule.title}`)}" time="${(time / 1000).toFixed(3)}"`;
    const reason = xml(`${verdict}: ${why.join(' | ')}`);
    if (verdict === 'pass') return `  ${head}/>`;
    if (verdict === 'broken') return `  ${head}><error message="${reason}"/></testcase>`;
    if (!isNews(result, strict)) return `  ${head}><skipped message="${reason}"/></testcase>`;
    return `  ${head}><failure message="${reason}">${xml(result.ladder)}</failure></testcase>`;
  });
  const failures = results.filter((r) => isNews(r, strict)).length;
  const errors = results.filter((r) => r.verdict === 'broken').length;
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuite name="roce conform" tests="${results.length}" failures="${failures}" errors="${errors}">`,
    ...cases,
    '</testsuite>',
    '',
  ].join('\n');
}
