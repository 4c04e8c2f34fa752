import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { FINDING_KINDS, RULES } from './index.ts';

const FOLDER = new URL('.', import.meta.url);

test('every file with a rule is in the table', () => {
  const files = readdirSync(FOLDER).filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'));
  const made = files.filter((name) => /= rule\(/.test(readFileSync(new URL(name, FOLDER), 'utf8')));
  expect(made.length).toBeGreaterThan(40);
  expect(RULES.length).toBe(made.filter((name) => name !== 'rule.ts').length);
});

test('a kind is of one rule, and a reason of recoveries too', () => {
  const kinds = RULES.flatMap((rule) => rule.kinds.map(({ kind }) => kind));
  expect(kinds).toEqual(Object.keys(FINDING_KINDS));
  const reasons = RULES.flatMap(({ recovery }) => recovery?.reason ?? []);
  expect(new Set(reasons).size).toBe(reasons.length);
});

test('a rule looks at something, and makes a finding or a cause of it', () => {
  for (const rule of RULES) {
    const { find, findInCapture, findInExchange, cause, causeInCapture, causeInExchange, recovery } = rule;
    const looks = [find, findInCapture, findInExchange, cause, causeInCapture, causeInExchange, recovery];
    expect(
      looks.some((each) => each !== undefined),
      rule.kinds[0].kind,
    ).toBe(true);
    // Without a stage a cause is never asked.
    expect(cause === undefined, rule.kinds[0].kind).toBe(rule.stage === undefined);
  }
});
