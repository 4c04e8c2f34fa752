// `node scripts/pnpm.mjs ARGUMENT…`: pnpm 12, from npm's cache, or from the registry where the cache has none.
//
// Npx alone asks the registry each time even so. Without a network it then tries again for more than ten minutes.
import { spawnSync } from 'node:child_process';

const PNPM = 'pnpm@12';

/** The cached program; undefined if npm has none. */
function cached() {
  const args = ['--offline', '--yes', `--package=${PNPM}`, '--call', 'command -v pnpm'];
  const { status, stdout } = spawnSync('npx', args, { encoding: 'utf8' });
  return status === 0 ? stdout.trim() : undefined;
}

const program = cached();
const [command, ...before] = program ? [program] : ['npx', '--yes', PNPM];
const { status, error } = spawnSync(command, [...before, ...process.argv.slice(2)], { stdio: 'inherit' });
if (error) console.error(`${command}: ${error.message}`);
process.exit(status ?? 1);
