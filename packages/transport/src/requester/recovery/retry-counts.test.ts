/** The counts behind `retry_cnt` and `rnr_retry` (ibv_modify_qp(3)), by themselves. */
import { expect, test } from 'vitest';
import { Retries } from './retries.ts';

const kinds = [
  ['retry_cnt', (r: Retries, n: number) => r.grant(n), (r: Retries) => r.spend()],
  ['rnr_retry', (r: Retries, n: number) => r.grantRnr(n), (r: Retries) => r.spendRnr()],
] as const;

/** Retries that are left, at most 20. */
function left(retries: Retries, spend: (retries: Retries) => boolean): number {
  let count = 0;
  while (count < 20 && spend(retries)) {
    count++;
    expect(retries.check()).toBeUndefined();
  }
  return count;
}

test.each(kinds)('%s: none is granted at first', (_, __, spend) => {
  expect(left(new Retries(), spend)).toBe(0);
});

test.each(kinds)('%s: as many as granted, and as many after progress', (_, grant, spend) => {
  const retries = new Retries();
  grant(retries, 3);
  expect(retries.check()).toBeUndefined();
  expect(left(retries, spend)).toBe(3);
  expect(spend(retries)).toBe(false);
  retries.progress();
  expect(left(retries, spend)).toBe(3);
  // Those that were not used are not added.
  retries.progress();
  retries.progress();
  expect(left(retries, spend)).toBe(3);
});

test.each(kinds)('%s: another grant replaces what is left', (_, grant, spend) => {
  const retries = new Retries();
  grant(retries, 5);
  spend(retries);
  grant(retries, 2);
  expect(left(retries, spend)).toBe(2);
});

test('7 is a count for retry_cnt, and without end for rnr_retry', () => {
  const retries = new Retries();
  retries.grant(7);
  retries.grantRnr(7);
  expect(left(retries, (r) => r.spend())).toBe(7);
  expect(left(retries, (r) => r.spendRnr())).toBe(20);
});

test('6 after RNR NAKs is a count', () => {
  const retries = new Retries();
  retries.grantRnr(6);
  expect(left(retries, (r) => r.spendRnr())).toBe(6);
});

test('retries and RNR retries are counted apart', () => {
  const retries = new Retries();
  retries.grant(2);
  retries.grantRnr(3);
  expect(left(retries, (r) => r.spendRnr())).toBe(3);
  expect(retries.anyLeft).toBe(true);
  expect(left(retries, (r) => r.spend())).toBe(2);
  expect(retries.anyLeft).toBe(false);
});

test('the check sees counts that cannot be', () => {
  for (const [, grant] of kinds) {
    const retries = new Retries();
    grant(retries, -1);
    expect(retries.check()).toContain('-1 of -1');
  }
});
