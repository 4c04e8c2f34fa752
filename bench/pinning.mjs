/**
 * Each side of a measurement on a processor of its own. Without that, Linux often wakes the receiver on
 * the processor that the sender spins on, and a figure depends more on the scheduler than on the program that is
 * measured. The same for every contender.
 */
import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';

/** A program ends with the bench, also with one that is killed: it would disturb what is measured next. */
const PINNED = ['--pdeathsig', 'KILL', '--', 'taskset', '-c'];
const canPin = availableParallelism() >= 2 && spawnSync('setpriv', [...PINNED, '0', 'true']).status === 0;

/** The report's line about it. */
export const pinning = canPin ? 'each side on a processor of its own' : 'not pinned';

/** The command, preceded by those that pin it to the processor of side 0 or 1, and end it with the bench. */
export function pinned(side, command, args) {
  return canPin ? ['setpriv', [...PINNED, String(side), command, ...args]] : [command, args];
}
