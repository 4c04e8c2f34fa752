/** Whether a run of `roce conform` left out a rule: the rules that it has to play, held to the lines that it printed. */
import { CASE_RULES, isServedBy, type NamedRule, RULES } from '@node-roce/conform';

/** Rules of a run. @param isMore with --hostile and --slow */
export function rulesOf(via: 'agent' | 'cm' | 'perftest', isMore: boolean): readonly NamedRule[] {
  return RULES.filter((rule) => isServedBy(rule, via) && (isMore || (!rule.hostile && !rule.slow)));
}

/** The rules about packets, which also have a line where the packets of a whole run gave an occasion. */
export const wholeRun = (isMore: boolean): readonly NamedRule[] => [
  ...rulesOf('agent', isMore),
  ...CASE_RULES,
];

/** Ids of the rules without a verdict in the output. */
export function leftOut(rules: readonly NamedRule[], output: string): string[] {
  const seen = new Set([...output.matchAll(/^[a-z][a-z ]{0,12} +([A-Z]+-\d+) {2}/gm)].map(([, id]) => id));
  return rules.map(({ id }) => id).filter((id) => !seen.has(id));
}
