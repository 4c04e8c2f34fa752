/** An empty root: the files of some Debian packages, Node as its tarball has it, and nothing else of this machine. */
import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { nodeDir } from '../../scripts/node-dir.mjs';

const output = (command, args) =>
  execFileSync(command, args, { encoding: 'utf8', maxBuffer: 2 ** 28, env: { ...process.env, LC_ALL: 'C' } });
const lines = (command, args) => output(command, args).split('\n');

/** The packages with all that they depend on, and what every Debian system has. */
function closureOf(names) {
  const wanted = ['depends', '--recurse', '--important', '--installed', ...names];
  const found = lines('apt-cache', wanted).filter((line) => /^[a-z0-9]/.test(line));
  // Virtual packages, in angle brackets, are followed to those that provide them.
  const absent = names.filter((name) => !found.includes(name));
  if (absent.length > 0) throw new Error(`not installed: ${absent.join(' ')}`);
  // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg-query's own.
  const every = lines('dpkg-query', ['-W', '-f', '${Package} ${Essential} ${Priority}\n'])
    .filter((line) => / yes |required$/.test(line))
    .map((line) => line.split(' ')[0]);
  return [...new Set([...found, ...every])];
}

/** Absolute paths of the packages' files, without links in their directories (`/bin` is one). */
function filesOf(packages) {
  const folders = new Map();
  const resolved = (folder) => {
    if (!folders.has(folder)) folders.set(folder, realpathSync(folder));
    return folders.get(folder);
  };
  const isThere = (path) => lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  const listed = lines('dpkg', ['-L', ...packages])
    .filter((path) => path.startsWith('/') && path !== '/.')
    .filter((path) => !/^\/usr\/share\/(doc|info|locale|man)\//.test(path) && isThere(path))
    .map((path) => join(resolved(dirname(path)), basename(path)));
  return new Set(listed);
}

/** Links that update-alternatives(1) made to one of the files: `c++`, `awk`. */
function alternativesOf(files) {
  const links = [];
  for (const name of readdirSync('/usr/bin')) {
    const link = join('/usr/bin', name);
    if (!lstatSync(link).isSymbolicLink() || !readlinkSync(link).startsWith('/etc/alternatives/')) continue;
    if (files.has(realpathSync(link))) links.push(link, readlinkSync(link));
  }
  return links;
}

function putPackages(root, names) {
  const files = filesOf(closureOf(names));
  const paths = ['/etc/alternatives', ...files, ...alternativesOf(files)].map((path) => path.slice(1));
  const script = 'tar -c -C / --no-recursion -T - | tar -x -C "$0"';
  execFileSync('bash', ['-o', 'pipefail', '-c', script, root], {
    input: paths.join('\n'),
    stdio: ['pipe', 'inherit', 'inherit'],
  });
}

/** /usr/local as it is after Node's tarball was unpacked there: npm and the headers are part of it. */
function putNode(root) {
  const local = join(root, 'usr/local');
  for (const folder of ['bin', 'include', 'lib/node_modules'])
    mkdirSync(join(local, folder), { recursive: true });
  copyFileSync(process.execPath, join(local, 'bin/node'));
  const npm = join(output('npm', ['root', '--global']).trim(), 'npm');
  cpSync(npm, join(local, 'lib/node_modules/npm'), { recursive: true });
  for (const name of ['npm', 'npx'])
    symlinkSync(`../lib/node_modules/npm/bin/${name}-cli.js`, join(local, 'bin', name));
  const headers = nodeDir();
  if (headers === undefined) throw new Error('this Node has no headers');
  cpSync(join(headers, 'include/node'), join(local, 'include/node'), { recursive: true });
}

/** Makes a root in an empty directory. */
export function makeRoot(root, packages) {
  putPackages(root, packages);
  putNode(root);
  for (const folder of ['dev', 'proc', 'root', 'srv', 'sys', 'tmp'])
    mkdirSync(join(root, folder), { recursive: true });
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/bash\n');
  writeFileSync(join(root, 'etc/group'), 'root:x:0:\n');
  writeFileSync(join(root, 'etc/hosts'), '127.0.0.1 localhost\n');
  execFileSync('chroot', [root, '/sbin/ldconfig']);
}
