// `node test/empty-root/run.mjs [test]`: what README.md promises of a clone, in an empty root: `npm run demo` prints its table. With
// `test`, `npm test` runs there as well.
//
// The root (root.mjs) has what README.md asks for: git, Node, a C++ compiler, make, Python 3. Its home is empty but for the caches of npm and
// pnpm, copied from this machine's, where `npm run setup` has filled them. Its network is a loopback interface: nothing is downloaded, so
// the time that it prints is what a user waits in addition to the download. Root, Debian.
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { sweep } from '../tiers/sweep.mjs';
import { makeRoot } from './root.mjs';

const PACKAGES = ['git', 'g++', 'make', 'python3'];
const repository = fileURLToPath(new URL('../..', import.meta.url));
const output = (command, ...args) =>
  execFileSync(command, args, { cwd: repository, encoding: 'utf8' }).trim();

/** Copies the caches that pnpm and npm have in a home: packages, their descriptions, what was checked of the lockfile. */
function copyCaches(home) {
  const store = output('node', 'scripts/pnpm.mjs', 'store', 'path');
  const cache = process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache');
  const places = [
    [output('npm', 'config', 'get', 'cache'), '.npm'],
    [join(cache, 'pnpm'), '.cache/pnpm'],
    [store, join('.local/share/pnpm/store', basename(store))],
  ];
  for (const [from, to] of places) {
    mkdirSync(join(home, dirname(to)), { recursive: true });
    execFileSync('cp', ['--archive', '--reflink=auto', from, join(home, to)]);
  }
  // Entries of the caches have the address of the registry in their names.
  writeFileSync(join(home, '.npmrc'), `registry=${output('npm', 'config', 'get', 'registry')}\n`);
}

/** Runs a command line in the root, as a login of its root without network, and calls back with each line and its time in seconds. */
async function enter(root, command, onLine) {
  const inside = `ip link set lo up
    for kind in proc sysfs; do mount -t $kind $kind "$0/\${kind%fs}"; done
    mount --rbind /dev "$0/dev"
    exec chroot "$0" /usr/bin/env --ignore-environment HOME=/root PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin NO_COLOR=1 \
      npm_config_offline=true pnpm_config_offline=true bash -c "cd && $1"`;
  const namespaces = ['--mount', '--net', '--pid', '--fork', '--kill-child'];
  const child = spawn('unshare', [...namespaces, 'bash', '-e', '-c', inside, root, command], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const started = performance.now();
  createInterface({ input: child.stdout }).on('line', (line) => {
    console.log(line);
    onLine?.(line, (performance.now() - started) / 1000);
  });
  const code = await new Promise((resolve) => child.on('close', resolve));
  if (code !== 0) throw new Error(`in the empty root: ${command} ended with ${code}`);
  return (performance.now() - started) / 1000;
}

async function demo(root) {
  let table;
  let link;
  await enter(root, 'cd node-roce && npm run demo', (line, seconds) => {
    link ??= /^Link: (\w+)/.exec(line)?.[1];
    if (/ equal$/.test(line)) table ??= seconds;
  });
  if (link !== 'udp')
    throw new Error(`the demo ran over ${link ?? 'no link'}, not over the addon that was built`);
  if (table === undefined) throw new Error('the demo printed no table');
  console.log(`result: the demo's table after ${table.toFixed(1)} s`);
}

if (process.getuid() !== 0) {
  console.error('empty-root: needs root, for chroot(1) and namespaces');
  process.exit(1);
}
sweep('roce-root-');
const place = mkdtempSync(join(tmpdir(), 'roce-root-'));
try {
  makeRoot(place, PACKAGES);
  copyCaches(join(place, 'root'));
  execFileSync('git', [
    'clone',
    '--quiet',
    '--bare',
    '--depth=1',
    `file://${repository}`,
    join(place, 'srv/node-roce.git'),
  ]);
  await enter(place, 'git clone --quiet /srv/node-roce.git node-roce');
  await demo(place);
  if (process.argv[2] === 'test') await enter(place, 'cd node-roce && npm test');
} finally {
  execFileSync('rm', ['--recursive', '--force', '--one-file-system', place]);
}
