/** Random numbers that a seed repeats. */
import { TWO_32 } from './bytes.ts';

export interface Random {
  /** Uniform, unsigned 32 bits. */
  next(): number;
  /** True with this probability, 0 … 1. */
  chance(probability: number): boolean;
  /** Uniform, 0 ≤ x < 1. */
  unit(): number;
  /** Uniform whole number, `from` … `to`, both included. */
  between(from: number, to: number): number;
  pick<T>(items: readonly T[]): T;
}

/** sfc32 (Chris Doty-Humphrey, PractRand): 128 bits of state, seeded by one number. */
export function createRandom(seed: number): Random {
  let [a, b, c, counter] = [0, seed | 0, (seed / TWO_32) | 0, 1];
  const next = () => {
    const t = (a + b + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + t;
    return t >>> 0;
  };
  for (let i = 0; i < 15; i++) next();
  const between = (from: number, to: number) => from + (next() % (to - from + 1));
  return {
    next,
    between,
    chance: (probability) => next() < probability * TWO_32,
    unit: () => next() / TWO_32,
    pick: (items) => items[between(0, items.length - 1)],
  };
}
