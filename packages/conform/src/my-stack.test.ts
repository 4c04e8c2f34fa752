/** The stack of docs/conform.md, and what the page states about it. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { myEndpoint } from '../testing/my-stack.ts';
import { rules } from './rules/all.ts';
import { play } from './run.ts';
import { endpointBench } from './virtual/bench.ts';

const read = (path: string) => readFileSync(new URL(path, import.meta.url), 'utf8');
const PAGE = read('../../../docs/conform.md');

test('docs/conform.md has the stack, and the output of the rule that finds its fault', async () => {
  expect(PAGE).toContain(read('../testing/my-stack.ts'));
  const { verdict, why, ladder } = await play(rules('PSN-01')[0], endpointBench(myEndpoint));
  expect(verdict).toBe('deviation');
  const shown = ladder.split('\n').slice(1, 9).join('\n');
  expect(PAGE).toContain(`${why.join('\n')}\n${shown}`);
});

test('rules that the stack keeps pass', async () => {
  for (const rule of rules('PSN-02', 'PSN-05', 'DUP-02'))
    expect((await play(rule, endpointBench(myEndpoint))).verdict, rule.id).toBe('pass');
});

test('no rule of these areas makes the stack throw, and the page has the number of those that pass', async () => {
  const verdicts: string[] = [];
  for (const rule of rules('PSN', 'ACK'))
    verdicts.push((await play(rule, endpointBench(myEndpoint))).verdict);
  expect(new Set(verdicts)).toEqual(new Set(['pass', 'deviation']));
  const passed = verdicts.filter((verdict) => verdict === 'pass').length;
  const others = verdicts.length - passed - 1;
  expect(PAGE).toContain(
    `Of these ${verdicts.length} rules, ${passed} pass. PSN-01 finds the fault, and ${others} need`,
  );
});

test('where the region begins at address 0, nothing is in front of it', async () => {
  const atZero: typeof myEndpoint = (options) => {
    const endpoint = myEndpoint(options);
    return { ...endpoint, info: { ...endpoint.info, base: 0n } };
  };
  const { verdict, why } = await play(rules('KEY-03')[0], endpointBench(atZero));
  expect([verdict, ...why]).toEqual(['not testable', 'the region begins at address 0']);
});
