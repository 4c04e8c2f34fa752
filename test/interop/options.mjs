// The command line of run.mjs.
import { SUITES } from './image.mjs';
import { fail } from './packages.mjs';

/** The options that run.mjs describes, and `filters`: what is left, for vitest. */
export function options() {
  const { ROCE_GUEST, ROCE_SAMPLE } = process.env;
  const found = {
    guest: ROCE_GUEST || 'debian12',
    sample: ROCE_SAMPLE || '',
    shell: '',
    prepare: false,
    lanes: 1,
    filters: [],
  };
  const args = process.argv.slice(2);
  for (let argument = args.shift(); argument !== undefined; argument = args.shift()) {
    if (argument === '--shell') found.shell = '1';
    else if (argument === '--only-shell') found.shell = 'only';
    else if (argument === '--prepare') found.prepare = true;
    else if (argument === '--guest') found.guest = args.shift() ?? '';
    else if (argument === '--lanes') found.lanes = Number(args.shift());
    else if (argument === '--sample') found.sample = args.shift() ?? '';
    else found.filters.push(argument);
  }
  const guests = Object.keys(SUITES);
  if (!guests.includes(found.guest)) fail(`--guest: expected ${guests.join(' or ')}, not "${found.guest}"`);
  if (!Number.isInteger(found.lanes) || found.lanes < 1) fail('--lanes: expected a positive number');
  if (found.shell) found.lanes = 1;
  return found;
}
