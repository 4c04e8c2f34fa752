// Checks every import of the repository against rules.json:
//
//   packages        the packages of the project that each package may import
//   sansIo          folders that import neither Node's modules nor npm packages, but for exceptSansIo
//   withoutNode     folders that a browser can load: they import none of Node's modules, nor what is in exceptWithoutNode
//   bundled         folders whose npm packages are bundled: devDependencies are enough
//   oracles         folders that import nothing but themselves and these packages, or these exports of packages
//   doors           the one file of a folder that files outside of it import
//   circlesAllowed  folders in which circles of files are not looked for
//
// Tests next to the code are checked for circles only. Exit code 1 and a line each for what breaks a rule.
//
// It reads imports by oxc-parser: dependency-cruiser 18 needs Node 22, and 17.4 cannot parse `await using` next to TypeScript 7.
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { circlesOf, importsOf } from './graph.mjs';

const SCOPE = '@node-roce/';
const SKIPPED = /^(\.(?!vitepress$)|node_modules$|dist$|build$)/;
const SOURCE = /\.[cm]?[jt]sx?$/;
const inAny = (folders, path) => folders.some((folder) => path.startsWith(folder));
const packageOf = (path) => /^packages\/([^/]+)\/src\//.exec(path)?.[1];

/** An oracle of the tests: itself, Node's modules and the packages that its rule names. */
function wrongInOracle(path, specifier, { rules }) {
  const [oracle, allowed] = Object.entries(rules.oracles).find(([folder]) => path.startsWith(folder));
  if (specifier.startsWith('.')) {
    const target = posix.join(posix.dirname(path), specifier);
    return !target.startsWith(oracle) && `outside of the oracle ${oracle}`;
  }
  const isAllowed = isBuiltin(specifier) || allowed.some((name) => specifier === SCOPE + name);
  return !isAllowed && `outside of the oracle ${oracle}`;
}

function wrongImport(path, specifier, { rules, manifests, exists }) {
  const own = packageOf(path);
  const withoutNode = inAny(rules.withoutNode, path) && !inAny(rules.exceptWithoutNode, path);
  if (specifier.startsWith('.')) {
    const target = posix.join(posix.dirname(path), specifier);
    if (!exists(target)) return 'which is no file';
    if (!target.startsWith(`packages/${own}/`)) return 'outside of its package';
    const room = Object.keys(rules.doors).find(
      (folder) => target.startsWith(folder) && !path.startsWith(folder),
    );
    if (room && target !== room + rules.doors[room]) return `past the door ${rules.doors[room]} of ${room}`;
    if (withoutNode && inAny(rules.exceptWithoutNode, target)) return 'which needs Node';
    const oracle = Object.keys(rules.oracles).find((folder) => path.startsWith(folder));
    return oracle && !target.startsWith(oracle) && `outside of the oracle ${oracle}`;
  }
  const sansIo = inAny(rules.sansIo, path) && !inAny(rules.exceptSansIo, path);
  if (isBuiltin(specifier)) return (sansIo && 'but does no I/O') || (withoutNode && 'but browsers load it');
  if (withoutNode && /^@node-roce\/[^/]+\/node$/.test(specifier)) return 'which needs Node';
  const name = specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
  const { dependencies, devDependencies, peerDependencies } = manifests[own];
  const declared = {
    ...dependencies,
    ...peerDependencies,
    ...(inAny(rules.bundled, path) && devDependencies),
  };
  if (!declared[name]) return 'which its package.json does not name';
  if (!name.startsWith(SCOPE)) return sansIo && 'a package from outside';
  const target = name.slice(SCOPE.length);
  const oracle = Object.entries(rules.oracles).find(([folder]) => path.startsWith(folder));
  if (oracle && !oracle[1].includes(specifier.slice(SCOPE.length)))
    return `outside of the oracle ${oracle[0]}`;
  return !rules.packages[own]?.includes(target) && 'which its rule does not allow';
}

/**
 * Violations of the rules, a line each.
 *
 * @param sources what each file imports, by path from the root
 * @param manifests package.json by package; @param references names of tsconfig's references by package
 * @param all the files that git knows: one that is not among the sources is a violation
 * @param exists whether a path that is no source is a file
 */
export function violations({ sources, rules, manifests, references, all, exists }) {
  const wrong = all.filter((path) => !sources.has(path)).map((path) => `${path} was not read`);
  const graph = new Map();
  const isThere = (path) => sources.has(path) || exists(path);
  for (const [path, imports] of sources) {
    const local = imports.filter((specifier) => specifier.startsWith('.'));
    const targets = local.map((specifier) => posix.join(posix.dirname(path), specifier));
    graph.set(path, inAny(rules.circlesAllowed, path) ? [] : targets.filter((target) => sources.has(target)));
    if (path.includes('.test.')) continue;
    if (!packageOf(path)) {
      if (!inAny(Object.keys(rules.oracles), path)) continue;
      for (const specifier of imports) {
        const why = wrongInOracle(path, specifier, { rules });
        if (why) wrong.push(`${path} imports ${specifier}, ${why}`);
      }
      continue;
    }
    for (const specifier of imports) {
      const why = wrongImport(path, specifier, { rules, manifests, exists: isThere });
      if (why) wrong.push(`${path} imports ${specifier}, ${why}`);
      const target = specifier.startsWith(SCOPE) && specifier.slice(SCOPE.length).split('/')[0];
      if (rules.packages[target] && !references[packageOf(path)].includes(target)) {
        wrong.push(`${path} imports ${specifier}, which its tsconfig.json does not reference`);
      }
    }
  }
  for (const [name, { dependencies = {} }] of Object.entries(manifests)) {
    if (!rules.packages[name]) wrong.push(`packages/${name} has no rule`);
    const named = Object.keys(dependencies).filter((other) => other.startsWith(SCOPE));
    for (const target of [...references[name], ...named.map((other) => other.slice(SCOPE.length))]) {
      if (!rules.packages[name]?.includes(target)) wrong.push(`packages/${name} depends on ${target}`);
    }
  }
  for (const name of Object.keys(rules.packages)) {
    if (!manifests[name]) wrong.push(`there is a rule for packages/${name}, which does not exist`);
  }
  return [...wrong, ...circlesOf(graph).map((circle) => `circle of files: ${circle.join(', ')}`)];
}

/** The source files below a directory, by reading directories. */
function* walk(root, directory = '') {
  for (const entry of readdirSync(join(root, directory), { withFileTypes: true })) {
    const path = posix.join(directory, entry.name);
    if (entry.isDirectory() && !SKIPPED.test(entry.name)) yield* walk(root, path);
    else if (entry.isFile() && SOURCE.test(path)) yield path;
  }
}

/** Reads the repository: what `violations` takes. */
export function repository(root = fileURLToPath(new URL('../..', import.meta.url))) {
  const read = (path) => readFileSync(join(root, path), 'utf8');
  const json = (path) => JSON.parse(read(path));
  const names = readdirSync(join(root, 'packages')).filter((name) =>
    existsSync(join(root, 'packages', name, 'package.json')),
  );
  const referencesOf = (name) =>
    (json(`packages/${name}/tsconfig.json`).references ?? []).map(({ path }) => path.replace('../', ''));
  const tracked = execFileSync('git', ['-C', root, 'ls-files'], { encoding: 'utf8' }).split('\n');
  return {
    sources: new Map([...walk(root)].map((path) => [path, importsOf(path, read(path))])),
    rules: json('scripts/imports/rules.json'),
    manifests: Object.fromEntries(names.map((name) => [name, json(`packages/${name}/package.json`)])),
    references: Object.fromEntries(names.map((name) => [name, referencesOf(name)])),
    all: tracked.filter((path) => SOURCE.test(path) && existsSync(join(root, path))),
    exists: (path) => existsSync(join(root, path)),
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const found = violations(repository());
  for (const line of found) console.error(line);
  if (found.length > 0) process.exitCode = 1;
}
