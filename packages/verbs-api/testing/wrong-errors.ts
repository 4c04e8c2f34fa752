/** Calls with arguments of every wrong type. */
import { RoceError } from '@node-roce/transport';

/**
 * Returns a function that calls with each value as one of the first `positions` arguments, and returns the errors that are
 * no RoceErrors; calls that wait are left alone.
 */
export function wrongErrorsWith(values: readonly unknown[], positions: number) {
  return async (name: string, call: (...args: unknown[]) => unknown): Promise<string[]> => {
    const found: string[] = [];
    for (const [i, wrong] of values.entries()) {
      for (let before = 0; before < positions; before++) {
        const args = [...Array(before).fill(undefined), wrong];
        const report = (error: unknown) => {
          if (!(error instanceof RoceError))
            found.push(`${name}, value ${i} as argument ${args.length}: ${error}`);
        };
        try {
          const result = call(...args);
          if (result instanceof Promise)
            await Promise.race([result.catch(report), new Promise(setImmediate)]);
        } catch (error) {
          report(error);
        }
      }
    }
    return found;
  };
}
