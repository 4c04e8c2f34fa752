/**
 * Each side of a measurement on a processor of its own. Without that, Linux often wakes the receiver on
 * the processor that the sender spins on, and a figure depends more on the scheduler than on the program that is
 * measured. The same for every contender.
 */
import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';

const canPin = availableParallelism() >= 2 && spawnSync('taskset', ['-c', '0', 'true']).status === 0;

/** The report's line about it. */
export const pinning = canPin ? 'each side on a processor of its own' : 'not pinned';

/** The command, preceded by the one that pins it to the processor of side 0 or 1. */
export function pinned(side, command, args) {
  return canPin ? ['taskset', ['-c', String(side), command, ...args]] : [command, args];
}
