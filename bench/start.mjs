/**
 * `npm run bench -- --start [FOLDER]`: what users wait for, and what they store. `import 'node-roce'` of the packed package, in turns with an empty
 * program, which tells how busy the machine is; and the bytes that npm installs.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { summary } from './statistics.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const ENTRIES = ['node-roce', 'node-roce/rdmacm'];
const RUNS = 11;
/** Variables such as NODE_EXTRA_CA_CERTS make each start of Node slower. */
const ENV = { PATH: process.env.PATH, HOME: process.env.HOME };

/** Standard output of a program; throws with its messages if it fails. */
function run(command, args, cwd, env = process.env) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, env, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed:\n${stderr}`);
  return stdout;
}

/** Installs the package of this tree, packed for this machine, in an empty project. */
export function install(folder, tarball) {
  writeFileSync(join(folder, 'package.json'), '{ "name": "user", "private": true, "type": "module" }');
  run('npm', ['install', '--no-audit', '--no-fund', tarball], folder);
}

/** Bytes of the files that npm installed. */
export const installedBytes = (folder) =>
  readdirSync(join(folder, 'node_modules'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);

/** The files that an import loads. */
export function filesOf(entry, folder, env = ENV) {
  const hook = `export async function load(url, context, next) {
    if (url.startsWith('file:')) console.log('file', url);
    return next(url, context);
  }`;
  const code = `import { register } from 'node:module';
    register(${JSON.stringify(`data:text/javascript,${encodeURIComponent(hook)}`)});
    await import('${entry}');`;
  const printed = run(process.execPath, ['--input-type=module', '-e', code], folder, env);
  return [...new Set(printed.split('\n').filter((line) => line.startsWith('file ')))].map((line) =>
    line.slice('file '.length),
  );
}

/** Milliseconds of an import, of its process, of an empty process; and of processor time, which other work disturbs less. */
export function timesOf(entry, folder, env = ENV) {
  const end = 'console.log(JSON.stringify([import_, process.cpuUsage()]));';
  const programs = {
    empty: `const import_ = 0; ${end}`,
    process: `const before = performance.now(); await import('${entry}'); const import_ = performance.now() - before; ${end}`,
  };
  const times = { import: [], process: [], empty: [], processor: [], emptyProcessor: [] };
  for (let i = 0; i < RUNS; i++)
    for (const [kind, program] of Object.entries(programs)) {
      const before = performance.now();
      const printed = run(process.execPath, ['--input-type=module', '-e', program], folder, env);
      times[kind].push(performance.now() - before);
      const [milliseconds, { user, system }] = JSON.parse(printed);
      times[kind === 'empty' ? 'emptyProcessor' : 'processor'].push((user + system) / 1000);
      if (kind === 'process') times.import.push(milliseconds);
    }
  return Object.fromEntries(Object.entries(times).map(([kind, values]) => [kind, summary(values)]));
}

/** One line of text. */
export function startLine(entry, { milliseconds, files }) {
  const of = (kind) => milliseconds[kind].median.toFixed(0);
  return `import '${entry}' takes ${of('import')} ms, its process ${of('process')}, an empty one ${of('empty')}; of processor time ${of('processor')} and ${of('emptyProcessor')} (medians of ${RUNS}), ${files} files`;
}

/**
 * @param folder where node-roce is installed; without it, this tree is packed and installed in a folder that is removed again, which takes minutes
 * @returns megabytes, and for each entry its files and times
 */
export function measureStart(folder, say) {
  const place = folder ?? mkdtempSync(join(tmpdir(), 'roce-bench-start-'));
  try {
    if (folder === undefined) {
      const pack = ['scripts/release/main.mjs', '--snapshot', '--out', join(place, 'packed'), process.arch];
      const tarballs = run(process.execPath, pack, ROOT).trim().split('\n');
      install(
        place,
        tarballs.find((path) => /node-roce-\d[^/]*$/.test(path)),
      );
    } else if (!existsSync(join(folder, 'node_modules/node-roce')))
      throw new Error(`node-roce is not installed in ${folder}`);
    const megabytes = installedBytes(place) / 1e6;
    say(`node-roce and all that npm installs with it: ${megabytes.toFixed(1)} MB`);
    const imports = ENTRIES.map((entry) => {
      const one = { entry, files: filesOf(entry, place).length, milliseconds: timesOf(entry, place) };
      say(startLine(entry, one));
      return one;
    });
    return { megabytes, imports };
  } finally {
    if (folder === undefined) rmSync(place, { recursive: true });
  }
}
