/** `roce conform --list`: the rules, or those that one way to a device can test. */
import {
  CASE_RULES,
  LISTS,
  type Link,
  lacksOf,
  type NamedRule,
  NEEDS,
  type Rule,
  ruleText,
  type Via,
} from '@node-roce/conform';
import type { Terminal } from '../terminal.ts';

/** `3 rules`. */
const counted = (n: number, what: string): string => `${n} ${what}${n === 1 ? '' : 's'}`;

/** @param via without it, every rule is listed */
export function listRules(
  chosen: readonly Rule[],
  passive: readonly NamedRule[],
  { via, link }: { via?: Via; link: Link },
  terminal: Terminal,
): void {
  const lackOf = (rule: NamedRule): string | undefined => {
    if (via === undefined) return undefined;
    if (rule.needs.includes('capture'))
      return CASE_RULES.some(({ id }) => id === rule.id) ? undefined : NEEDS.capture;
    const [lack] = lacksOf(rule, via, link);
    return lack && NEEDS[lack];
  };
  const isListed = (rule: NamedRule) => lackOf(rule) === undefined;
  const active = chosen.filter(isListed);
  const checks = passive.filter(isListed);
  for (const rule of [...active, ...checks]) terminal.line(ruleText(rule));
  const marks = (['hostile', 'slow'] as const).flatMap((mark) => {
    const count = active.filter((rule) => rule[mark]).length;
    return count > 0 ? [`${count} only with --${mark}`] : [];
  });
  const total = [
    ...(active.length > 0
      ? [`${counted(active.length, 'rule')}${marks.length > 0 ? ` (${marks.join(', ')})` : ''}`]
      : []),
    ...(checks.length > 0 ? [counted(checks.length, 'passive check')] : []),
  ];
  terminal.line('');
  const others = groupsOf([...chosen, ...passive], lackOf);
  if (others.size > 0) {
    terminal.line(`Not testable with --via ${via}${via === 'model' ? '' : ` --link ${link}`}:`);
    for (const [lack, ids] of others) terminal.line(`  needs ${lack}: ${ids.join(', ')}`);
    terminal.line('');
  }
  const found = total.join(', ') || 'No rule';
  terminal.line(`${found}. Lists of known deviations: ${Object.keys(LISTS).join(', ')}`);
}

/** Ids of rules by what they need and do not get. */
function groupsOf(
  rules: readonly NamedRule[],
  lackOf: (rule: NamedRule) => string | undefined,
): ReadonlyMap<string, readonly string[]> {
  const groups = new Map<string, string[]>();
  for (const rule of rules) {
    const lack = lackOf(rule);
    if (lack !== undefined) groups.set(lack, [...(groups.get(lack) ?? []), rule.id]);
  }
  return groups;
}
