/** Numbers for rules that send packets which are partly right. */

/** A generator of the same numbers each time. */
export function drawFrom(seed: number): (n: number) => number {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) % n;
  };
}
