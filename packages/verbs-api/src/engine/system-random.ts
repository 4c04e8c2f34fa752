/** Randomness of engines. */
import { randomFillSync } from 'node:crypto';

/** 32 random bits from the operating system's generator, a block at a time. */
export function systemRandom(): () => number {
  const block = new Uint32Array(512);
  let at = block.length;
  return () => {
    if (at === block.length) {
      randomFillSync(block);
      at = 0;
    }
    return block[at++];
  };
}
