/**
 * Assembles a package that users install (products.mjs) from the packages of the workspace:
 *
 *   lib/NAME/          each package of the workspace that it needs, built, without its sources; some joined into few files (join.mjs)
 *   lib/dgram-native/  the addon's sources and its prebuilt files
 *   docs/, examples/   as in the repository
 *
 * Imports of `@node-roce/NAME` become relative. So one tarball is enough, and no package manager asks the registry for an inner package.
 * The addon's binding.gyp is not at the top: package managers that see one there compile it, although a prebuilt addon is present.
 */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, sep } from 'node:path';
import { JOINED, joinModules } from './join.mjs';

const SCOPE = '@node-roce/';
/** The specifier of an import or an export, in JavaScript and in declarations, and of a type's import. */
const SPECIFIER = /(\bfrom\s*|\bimport\s*\(\s*|\bimport\s+)(["'])(@node-roce\/[^"']+)\2/g;
/** Not for users: tests, state of builds, sources and the maps to them; docs/api, which is generated; the site's tools. */
const LEFT_OUT =
  /\.test\.|\.(tsbuildinfo|[jt]s\.map|yaml)$|^(node_modules|testing|src|tsconfig\.json|\.vitepress)$|^api$/;
const SOURCE_MAP = /^\/\/# sourceMappingURL=.*\n?/gm;

/** The reason why nothing is packed. */
export class Failure extends Error {}

/** The packages of the workspace by name: folder and manifest. */
export function workspace(root) {
  const folders = [...readdirSync(join(root, 'packages')).map((name) => join('packages', name)), 'native'];
  return new Map(
    folders.map((folder) => {
      const manifest = JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8'));
      return [manifest.name, { folder: join(root, folder), manifest }];
    }),
  );
}

/** The names of the workspace's packages that those of `names` need, themselves included. */
function closure(packages, names) {
  const needed = new Set(names);
  for (const name of needed) {
    const { manifest } = packages.get(name) ?? {};
    if (!manifest) throw new Failure(`no package ${name} in the workspace`);
    for (const dependency of Object.keys(manifest.dependencies ?? {}))
      if (packages.has(dependency)) needed.add(dependency);
  }
  return [...needed];
}

/** Dependencies of other people, of all `names`. */
function outerDependencies(packages, names) {
  const dependencies = {};
  for (const name of names) {
    for (const [dependency, version] of Object.entries(packages.get(name).manifest.dependencies ?? {})) {
      if (packages.has(dependency)) continue;
      if ((dependencies[dependency] ?? version) !== version)
        throw new Failure(`two versions of ${dependency}: ${dependencies[dependency]}, ${version}`);
      dependencies[dependency] = version;
    }
  }
  return Object.fromEntries(Object.entries(dependencies).sort());
}

/** Packages that a user may install next to it, for one command. */
function peersOf(packages, names) {
  const merged = (field) => Object.assign({}, ...names.map((name) => packages.get(name).manifest[field]));
  const peerDependencies = merged('peerDependencies');
  return Object.keys(peerDependencies).length > 0
    ? { peerDependencies, peerDependenciesMeta: merged('peerDependenciesMeta') }
    : {};
}

const inner = (name) => `lib/${name.slice(SCOPE.length)}`;

/** A name of the scope in two: its package, and the export or the file of it. */
function split(specifier) {
  const [scope, name, ...rest] = specifier.split('/');
  return { name: `${scope}/${name}`, rest: rest.join('/') };
}

/** The files of what a specifier names, by the conditions `types` and `default`: from the top of the assembled package. */
function targetOf(packages, specifier) {
  const { name, rest } = split(specifier);
  const { manifest } = packages.get(name) ?? {};
  const entry = manifest?.exports?.[rest ? `./${rest}` : '.'];
  if (!entry) throw new Failure(`${specifier} is no export of a package of the workspace`);
  const place = (path) => `./${join(inner(name), path)}`;
  if (typeof entry === 'string') return place(entry);
  return Object.fromEntries(Object.entries(entry).map(([condition, path]) => [condition, place(path)]));
}

/** Makes the imports of one file relative. */
function rewrite(packages, place, path) {
  const text = readFileSync(path, 'utf8');
  const written = text.replaceAll(SOURCE_MAP, '').replaceAll(SPECIFIER, (_, before, quote, specifier) => {
    const target = targetOf(packages, specifier);
    // TypeScript finds the declaration next to the module.
    const module = typeof target === 'string' ? target : target.default;
    const found = relative(dirname(path), join(place, module)).split(sep).join('/');
    return `${before}${quote}${found.startsWith('.') ? found : `./${found}`}${quote}`;
  });
  if (written !== text) writeFileSync(path, written);
}

function filesBelow(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

/** Copies one package of the workspace: what its manifest lists in `files`, without sources that were compiled. */
function copyInner(place, { folder, manifest }) {
  const target = join(place, inner(manifest.name));
  const compiled = existsSync(join(folder, 'dist'));
  const take = (path) => !(LEFT_OUT.test(basename(path)) && (compiled || basename(path) !== 'src'));
  for (const name of manifest.files.filter((file) => !file.startsWith('!'))) {
    if (existsSync(join(folder, name)) && take(join(folder, name)))
      cpSync(join(folder, name), join(target, name), { recursive: true, filter: take });
  }
  // The nearest manifest determines the kind of module of a file; the command reads its version from it.
  const { name, version, type } = manifest;
  writeFileSync(
    join(target, 'package.json'),
    `${JSON.stringify({ name, version, type, private: true }, null, 2)}\n`,
  );
}

/**
 * Assembles `product` in the folder `place`.
 *
 * @param {string} root of the repository, built
 * @param {object} product a row of products.mjs
 * @param {string} native the folder of the native package, with its prebuilt files
 * @param {string} place an empty folder
 */
export function assemble(root, product, native, place) {
  const packages = workspace(root);
  packages.get('@node-roce/dgram-native').folder = native;
  const entries = [...Object.values(product.exports), ...Object.values(product.bin ?? {})];
  const names = closure(
    packages,
    entries.map((specifier) => split(specifier).name),
  );
  for (const name of names) copyInner(place, packages.get(name));
  for (const name of names.filter((each) => JOINED.includes(each)))
    joinModules(root, join(place, inner(name)), packages.get(name).manifest.exports);
  for (const folder of product.folders)
    cpSync(join(root, folder), join(place, folder), {
      recursive: true,
      filter: (path) => !LEFT_OUT.test(basename(path)) && basename(path) !== 'package.json',
    });
  for (const path of filesBelow(join(place, 'lib')))
    if (/\.(js|d\.ts)$/.test(path)) rewrite(packages, place, path);
  writePage(root, product, place);
  cpSync(join(root, 'LICENSE'), join(place, 'LICENSE'));
  const { version, author, license, engines } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const { name, description, keywords, bin } = product;
  const manifest = {
    ...{ name, version, description, keywords, author, license, type: 'module', engines },
    ...(bin && {
      bin: Object.fromEntries(Object.entries(bin).map(([command, file]) => [command, binOf(file)])),
    }),
    exports: {
      ...Object.fromEntries(
        Object.entries(product.exports).map(([path, specifier]) => [path, targetOf(packages, specifier)]),
      ),
      './package.json': './package.json',
    },
    files: ['lib', ...product.folders, 'CHANGELOG.md'],
    dependencies: outerDependencies(packages, names),
    ...peersOf(packages, names),
  };
  writeFileSync(join(place, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
}

function binOf(file) {
  const { name, rest } = split(file);
  return join(inner(name), rest);
}

/** README.md, with links to the files of the package; a link to what the package does not hold becomes its text. */
function writePage(root, product, place) {
  mkdirSync(place, { recursive: true });
  if (product.folders.length > 0) cpSync(join(root, 'CHANGELOG.md'), join(place, 'CHANGELOG.md'));
  const from = dirname(join(root, product.page));
  const text = readFileSync(join(root, product.page), 'utf8');
  const page = text.replaceAll(/(!?)\[([^\]]*)\]\(([^)\s]+)\)/g, (link, picture, words, target) => {
    if (/^[a-z]+:|^#/.test(target)) return link;
    const [path, anchor = ''] = target.split(/(?=#)/);
    const inside = relative(root, join(from, path));
    if (existsSync(join(place, inside))) return `${picture}[${words}](${inside}${anchor})`;
    return picture ? '' : words;
  });
  writeFileSync(join(place, 'README.md'), page);
}
