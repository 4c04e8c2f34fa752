/** The list of answers that came early: what each request that comes again shows by it. */
import { expect, test } from 'vitest';
import { EarlyAnswers } from './early-answers.ts';

/** Two pieces of weak evidence are enough. */
function keepsAfter(
  ...passedOver: readonly (readonly [added: readonly number[], asked: number, next: number])[]
) {
  const early = new EarlyAnswers();
  for (const [added, asked, next] of passedOver) {
    for (const psn of added) early.add(psn);
    early.askedAgain(asked, asked + 1, false);
    early.passed(next);
  }
  return early.keeps;
}

test('whatever order they came in, and however often, each is taken once', () => {
  const early = new EarlyAnswers();
  for (const psn of [9, 5, 7, 5]) early.add(psn);
  expect([5, 7, 9, 5, 6].map((psn) => early.take(psn))).toEqual([true, true, true, false, false]);
  expect(early.isFrom(5)).toBe(false);
});

test('a packet that passes over them, twice, shows that they are kept; one that comes to them does not', () => {
  expect(keepsAfter([[6], 3, 7], [[14, 12], 10, 13])).toBe(true);
  expect(keepsAfter([[6], 3, 7], [[14, 12], 10, 12])).toBe(false);
});

test('those that came since, or before what is asked for, it does not pass over', () => {
  const early = new EarlyAnswers();
  for (const psn of [2, 8]) early.add(psn);
  early.askedAgain(4, 5, false);
  early.add(6);
  for (const psn of [7, 8]) early.passed(psn);
  expect(early.keeps).toBe(false);
});

test('a READ that ends where they begin shows it at once; one that asks for them as well, the contrary', () => {
  const early = new EarlyAnswers();
  for (const psn of [4, 5, 9]) early.add(psn);
  // For all up to 9, of 2^40 that the READ would have: no more than what is here is looked at.
  early.askedAgain(3, 2 ** 40, false);
  early.add(9);
  early.askedAgain(8, 9, true);
  expect(early.keeps).toBe(false);
  early.askedAgain(8, 9, true);
  expect(early.keeps).toBe(true);
});
