/**
 * The second step of `npm run build:ts`: writes numbers in the place of the names of constants, in the built modules of the packages that each
 * packet passes. To V8, the import of another module is a variable: each use of `SendWqe.LENGTH` loads it, looks whether it is initialized, and checks the
 * object and the member. These loads were an eighth of the processor time of small messages (docs/performance.md).
 *
 * A constant is what the declarations (`.d.ts`) of the built packages give as a number: `const NAME = 5`, or a readonly member of a `const`. If
 * one changes, everything is compiled again: tsc with `isolatedModules` writes the changed module alone, and numbers have no names to write anew.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync, visitorKeys } from 'oxc-parser';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const INLINED = ['wire', 'transport', 'link', 'verbs-api'].map((name) =>
  join(ROOT, 'packages', name, 'dist'),
);
/** The constants whose numbers the built modules have. */
const WRITTEN = join(ROOT, '.cache/constants.json');
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc');

/** Calls `see(node, parent)` for each node below one, until that returns false. */
function walk(node, see, parent) {
  if (see(node, parent) === false) return;
  for (const key of visitorKeys[node.type] ?? [])
    for (const child of [node[key]].flat()) if (child) walk(child, see, node);
}

/** The number that a type or an initializer is; undefined: none. */
function numberOf(node) {
  if (node?.type === 'TSLiteralType') return numberOf(node.literal);
  if (node?.type === 'UnaryExpression' && node.operator === '-') {
    const number = numberOf(node.argument);
    return number === undefined ? undefined : -number;
  }
  return node?.type === 'Literal' && typeof node.value === 'number' ? node.value : undefined;
}

/** What a declared constant is: a number, or numbers by name; undefined: neither. */
function constantOf({ id, init }) {
  const type = id.typeAnnotation?.typeAnnotation;
  if (type?.type !== 'TSTypeLiteral') return numberOf(init ?? type);
  const members = type.members.filter(({ readonly, key }) => readonly && key.type === 'Identifier');
  const numbers = members.map(({ key, typeAnnotation }) => [
    key.name,
    numberOf(typeAnnotation.typeAnnotation),
  ]);
  return Object.fromEntries(numbers.filter(([, number]) => number !== undefined));
}

/** What each built module exports, by its path without an ending. */
const exportedBy = new Map();

/** The constants that a built module exports, by name. @param path without its ending */
function constantsOf(path) {
  if (exportedBy.has(path)) return exportedBy.get(path);
  const constants = new Map();
  exportedBy.set(path, constants);
  const file = `${path}.d.ts`;
  if (!existsSync(file)) return constants;
  for (const node of parseSync(file, readFileSync(file, 'utf8')).program.body) {
    if (node.type === 'ExportAllDeclaration')
      for (const [name, constant] of constantsOf(target(path, node.source.value)))
        if (!constants.has(name)) constants.set(name, constant);
    if (node.type !== 'ExportNamedDeclaration') continue;
    if (node.declaration?.kind === 'const')
      for (const declarator of node.declaration.declarations)
        constants.set(declarator.id.name, constantOf(declarator));
    if (node.source === null) continue;
    const others = constantsOf(target(path, node.source.value));
    for (const { local, exported } of node.specifiers) constants.set(exported.name, others.get(local.name));
  }
  return constants;
}

/** Where a module that another one names was built, without its ending. */
function target(path, name) {
  const own = /^@node-roce\/([\w-]+)$/.exec(name);
  if (own) return join(path.slice(0, path.lastIndexOf(`${sep}dist${sep}`)), '..', own[1], 'dist/index');
  return resolve(dirname(path), name.replace(/\.[jt]s$/, ''));
}

/** The constants that a module knows by name: those that it imports, exports, or declares for itself. */
function constantsIn(path, program) {
  const constants = new Map(constantsOf(path));
  for (const node of program.body) {
    if (node.type === 'ImportDeclaration') {
      const others = /^(\.|@node-roce\/)/.test(node.source.value)
        ? constantsOf(target(path, node.source.value))
        : new Map();
      for (const { local, imported } of node.specifiers)
        constants.set(local.name, imported ? others.get(imported.name) : undefined);
    }
    if (node.type !== 'VariableDeclaration') continue;
    // What is none hides one that the module exports by this name, of another module.
    for (const { id, init } of node.declarations)
      for (const name of namesIn(id))
        constants.set(name, node.kind === 'const' && name === id.name ? numberOf(init) : undefined);
  }
  return constants;
}

/** The names that a declaration or a parameter gives. */
function namesIn(pattern) {
  if (!pattern) return [];
  const { type, name, properties, elements, left, argument, value } = pattern;
  return type === 'Identifier'
    ? [name]
    : [properties, elements, left, argument, value].flat().flatMap(namesIn);
}

/** Names that are declared inside of functions, or are parameters: there they may hide a constant. */
function hiddenIn(program) {
  const ofModule = new Set(program.body.map((node) => node.declaration ?? node));
  const hidden = new Set();
  walk(program, (node, parent) => {
    const declares =
      node.type === 'VariableDeclarator' ? !ofModule.has(parent) : /Function|Class|Catch/.test(node.type);
    if (!declares) return;
    for (const pattern of [node.id, node.param, node.params].flat())
      for (const name of namesIn(pattern)) hidden.add(name);
  });
  return hidden;
}

/** A number in the place of a name: no shorter, so that what is behind it keeps its place in the source map. */
function written(number, { start, end }, parent) {
  const text = number < 0 || parent.object?.start === start ? `(${number})` : `${number}`;
  return text.padEnd(end - start);
}

/** Where a module has numbers to be written, and which. */
function editsOf(path, text) {
  const { program } = parseSync(`${path}.js`, text);
  const constants = constantsIn(path, program);
  const hidden = hiddenIn(program);
  const known = ({ name }) => (hidden.has(name) ? undefined : constants.get(name));
  const edits = [];
  walk(program, (node, parent) => {
    if (/^(Import|Export(All|Default|Specifier))/.test(node.type)) return false;
    const isName = node === parent?.id || (node === (parent?.key ?? parent?.property) && !parent.computed);
    if (isName) return false;
    if (node.type === 'MemberExpression' && !node.computed && node.object.type === 'Identifier') {
      const number = known(node.object)?.[node.property.name];
      if (typeof number === 'number') edits.push({ node, text: written(number, node, parent) });
    } else if (node.type === 'Identifier' && typeof known(node) === 'number') {
      const number = written(known(node), node, parent);
      edits.push({ node, text: parent.shorthand ? `${node.name}: ${number}` : number });
    }
  });
  return edits;
}

/**
 * Writes the numbers into the modules of a package, where they are not written yet.
 *
 * @param {string} dist the folder of its built modules
 */
export function inlineConstants(dist) {
  for (const file of readdirSync(dist, { recursive: true })) {
    if (!file.endsWith('.js')) continue;
    const path = join(dist, file);
    const before = readFileSync(path, 'utf8');
    let text = before;
    // A constant of the module may have its number only now, as `const SIZE = -LENGTH`.
    for (let edits; edits?.length !== 0; ) {
      edits = editsOf(path.slice(0, -'.js'.length), text);
      // From the last one on: places before an edit stay as they are.
      for (const { node, text: number } of edits.reverse())
        text = text.slice(0, node.start) + number + text.slice(node.end);
    }
    if (text !== before) replace(path, text);
  }
}

/** Writes a file as a whole or not at all: tsc would not repair half of one. */
function replace(path, text) {
  const next = `${path}.${process.pid}`;
  writeFileSync(next, text);
  renameSync(next, path);
}

/** All constants of the packages, as text. */
function allConstants() {
  for (const dist of INLINED)
    for (const file of readdirSync(dist, { recursive: true }))
      if (file.endsWith('.d.ts')) constantsOf(join(dist, file.slice(0, -'.d.ts'.length)));
  const modules = [...exportedBy].map(([path, constants]) => [relative(ROOT, path), [...constants]]);
  return JSON.stringify(modules.sort(([a], [b]) => (a < b ? -1 : 1)));
}

function main() {
  const constants = allConstants();
  // Without a record, there may be any numbers.
  if (!existsSync(WRITTEN) || readFileSync(WRITTEN, 'utf8') !== constants) {
    for (const dist of INLINED) rmSync(join(dist, '.tsbuildinfo'), { force: true });
    execFileSync(process.execPath, [TSC, '--build'], { cwd: ROOT, stdio: 'inherit' });
  }
  // Before the first number: if this process ends early, the next one knows which numbers there may be.
  mkdirSync(dirname(WRITTEN), { recursive: true });
  replace(WRITTEN, constants);
  for (const dist of INLINED) inlineConstants(dist);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
