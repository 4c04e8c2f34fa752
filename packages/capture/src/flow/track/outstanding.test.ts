import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Outstanding, unwrap, unwrapFirst } from './outstanding.ts';

test('finds every PSN in the entry that holds it, however many there are and whatever they span', () => {
  const span = fc.oneof({ weight: 4, arbitrary: fc.constant(1) }, fc.integer({ min: 2, max: 300 }));
  fc.assert(
    fc.property(
      fc.array(span, { minLength: 1, maxLength: 400 }),
      fc.integer({ min: 0, max: 20 }),
      (spans, earlier) => {
        const out = new Outstanding();
        const first = 5000;
        const begins: number[] = [];
        let psn = first;
        for (const taken of spans) {
          const slot = out.append(psn, 0);
          out.spans[slot] = taken;
          begins.push(psn);
          psn += taken;
        }
        for (let i = 1; i <= earlier; i++) expect(out.prepend(first - i, 0)).toBeGreaterThanOrEqual(0);
        spans.forEach((taken, i) => {
          for (const at of [begins[i], begins[i] + taken - 1]) {
            expect(out.psns[out.slot(out.find(at))]).toBe(begins[i]);
          }
        });
        if (earlier > 0) expect(out.psns[out.slot(out.find(first - earlier))]).toBe(first - earlier);
        expect(out.find(psn)).toBe(-1);
        expect(out.find(first - earlier - 1)).toBe(-1);
      },
    ),
  );
});

test('answered entries make room, unanswered ones make it grow, to a bound', () => {
  const out = new Outstanding();
  for (let psn = 0; psn < 10_000; psn++) {
    out.append(psn, 0);
    out.walk++;
  }
  expect(out.psns.length).toBe(16);
  expect(out.find(9_990)).toBeGreaterThan(0);
  expect(out.find(9_000)).toBe(-1);
  while (!out.full) out.append(out.tail, 0);
  expect(out.unanswered).toBe(1 << 15);
  expect(out.psns.length).toBeLessThanOrEqual(1 << 16);
});

test('shrinks to the newest entries', () => {
  const out = new Outstanding();
  for (let psn = 0; psn < 1000; psn++) out.append(psn, psn);
  out.walk = out.tail - 5;
  out.shrink(16);
  expect(out.psns.length).toBe(16);
  expect(out.count).toBe(16);
  expect(out.unanswered).toBe(5);
  for (let psn = 984; psn < 1000; psn++) expect(out.firstTimes[out.slot(out.find(psn))]).toBe(psn);
  expect(out.find(983)).toBe(-1);
});

test('PSNs go on past their end', () => {
  const near = unwrapFirst(0xff_fffe);
  expect(unwrap(2, near)).toBe(near + 4);
  expect(unwrap(0xff_fff0, unwrap(2, near))).toBe(near - 14);
});
