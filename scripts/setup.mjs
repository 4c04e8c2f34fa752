/** `npm run setup`: installs the dependencies, and builds the addon, the library for `roce run`, and the packages. */
import { runSteps } from './steps.mjs';

const npm = (script, ...args) => ['npm', 'run', '--silent', script, ...args];
process.exitCode = await runSteps('setup', [
  [
    'installing packages',
    'node',
    'scripts/pnpm.mjs',
    'install',
    '--frozen-lockfile',
    '--reporter=append-only',
  ],
  ['compiling the addon', ...npm('build:native', '--', '--optional')],
  ['compiling TypeScript', ...npm('build:ts')],
]);
