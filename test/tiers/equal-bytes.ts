/**
 * A setup file of Vitest, which compares arrays element by element, about a microsecond each: for arrays of bytes that are equal,
 * one call of memcmp shows it. Those that differ are left to Vitest, which shows where.
 */
import { expect } from 'vitest';

const ADDED = Symbol.for('node-roce: equal bytes');
const seen = globalThis as { [ADDED]?: boolean };

// Files that share a worker share the list of testers.
if (!seen[ADDED]) {
  seen[ADDED] = true;
  expect.addEqualityTesters([
    (a: unknown, b: unknown) =>
      a instanceof Uint8Array &&
      b instanceof Uint8Array &&
      a.constructor === b.constructor &&
      a.length === b.length &&
      Buffer.compare(a, b) === 0
        ? true
        : undefined,
  ]);
}
