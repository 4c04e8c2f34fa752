/** Free-running 32-bit counts: the indices of rings. They wrap, so they are compared by their distance. */

/** The index after this one. */
export function indexAfter(index: number): number {
  return (index + 1) | 0;
}

/** The index before this one. */
export function indexBefore(index: number): number {
  return (index - 1) | 0;
}

/** How far `a` is past `b`; negative where it is before it. */
export function indexDiff(a: number, b: number): number {
  return (a - b) | 0;
}

/** Whether `a` is before `b`. */
export function indexLess(a: number, b: number): boolean {
  return ((a - b) | 0) < 0;
}
