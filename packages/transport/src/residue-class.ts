/** Numbers that are `remainder` modulo `modulus`, a power of two: those of one of several adapters at an address. */
export interface ResidueClass {
  readonly modulus: number;
  readonly remainder: number;
}

/** All numbers: those of an adapter that has its address alone. */
export const EVERY_NUMBER: ResidueClass = { modulus: 1, remainder: 0 };

/** The number of the class that has the same bits above the modulus, unsigned 32-bit. */
export const intoClass = (number: number, { modulus, remainder }: ResidueClass): number =>
  ((number & -modulus) | remainder) >>> 0;
