// Writes the reference into docs/api, which git ignores, from the docstrings of the packages' exports: `npm run docs:api`. README.md there has the
// packages that most programs use, NAME.md one other package. Without a docstring of an export of README.md it fails. `--check` writes nothing.
//
// Reads the declarations that the build made (packages/*/dist/*.d.ts, native/index.d.ts): every type is spelled
// out there.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync } from 'oxc-parser';

const root = fileURLToPath(new URL('..', import.meta.url));
/** The packages of docs/api/README.md. */
const PROGRAMS = ['verbs-api', 'rdmacm', 'ibverbs'];
/** Packages with a page of their own. */
const PARTS = [
  ...['wire', 'pcap', 'transport', 'cm', 'link', 'dgram-native'],
  ...['rsocket', 'capture', 'sim', 'perf', 'device', 'cli'],
];
/** The sections that a reader meets first; the rest follows by name. */
const FIRST = ['device', 'protection-domain', 'memory', 'memory-region', 'queue-pair', 'work-request'];

// ------------------------------------------------------------------ reading

const files = new Map();

/** A file: its text, its top-level statements, and the doc comment that stands before a position. */
function open(path) {
  if (files.has(path)) return files.get(path);
  const text = readFileSync(path, 'utf8');
  const { program, comments, errors } = parseSync(path, text);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0].message}`);
  const blocks = comments.filter((c) => c.type === 'Block' && c.value.startsWith('*'));
  const before = (position) => {
    const found = blocks.findLast((c) => c.end <= position);
    return found && text.slice(found.end, position).trim() === '' ? plain(found.value) : '';
  };
  const file = { path, text, body: program.body, before };
  files.set(path, file);
  return file;
}

/** The text of a doc comment. */
function plain(value) {
  return value
    .replace(/^\*+/, '')
    .split('\n')
    .map((line) => line.replace(/^\s*\*? ?/, ''))
    .join('\n')
    .trim();
}

/** The declarations of a package; those of the addon are written by hand. */
const entryOf = (name) =>
  name === 'dgram-native' ? join(root, 'native/index.d.ts') : join(root, 'packages', name, 'dist/index.d.ts');

/** The entry of a package for what needs Node, if it has one. */
const nodeEntryOf = (name) => join(root, 'packages', name, 'dist/node/index.d.ts');

function resolve(specifier, from) {
  if (specifier.startsWith('.')) return join(dirname(from), specifier.replace(/\.[tj]s$/, '.d.ts'));
  return entryOf(specifier.replace('@node-roce/', ''));
}

/** Where a name that a file exports is declared: `{ file, node, name }`. */
function find(path, name) {
  const file = open(path);
  for (const node of file.body) {
    if (node.type === 'ExportAllDeclaration') {
      const target = node.source.value.startsWith('node:') ? undefined : resolve(node.source.value, path);
      const found = target && existsSync(target) && find(target, name);
      if (found) return found;
    } else if (node.type === 'ExportNamedDeclaration') {
      const specifier = node.specifiers.find((s) => s.exported.name === name);
      if (specifier && node.source) return find(resolve(node.source.value, path), specifier.local.name);
      if (specifier) return declared(file, specifier.local.name);
      if (node.declaration && namesOf(node.declaration).includes(name))
        return { file, node: node.declaration, start: node.start, name };
    }
  }
  return undefined;
}

function declared(file, name) {
  const node = file.body.find((n) => namesOf(n).includes(name));
  return node && { file, node, start: node.start, name };
}

const namesOf = (node) =>
  node.type === 'VariableDeclaration'
    ? node.declarations.map((d) => d.id.name)
    : node.id
      ? [node.id.name]
      : [];

/** Every name that a file exports, in order. */
function exportsOf(path) {
  return open(path).body.flatMap((node) => {
    if (node.type === 'ExportAllDeclaration') return exportsOf(resolve(node.source.value, path));
    if (node.type !== 'ExportNamedDeclaration') return [];
    return node.declaration ? namesOf(node.declaration) : node.specifiers.map((s) => s.exported.name);
  });
}

// ------------------------------------------------------------------ writing

const undocumented = [];

/** Text in the page: tags as a list, links as code. */
function prose(doc, indent = '') {
  const [text, ...tags] = doc.split(/^@/m);
  const items = tags.map((tag) => {
    const [, kind, rest] = /^(\w+)\s*([\s\S]*)$/.exec(tag);
    const body = rest.trim().replace(/\n/g, ' ');
    if (kind === 'param') return `- \`${body.replace(/^(\S+)\s*[-–]?\s*/, '$1`: ')}`;
    return kind === 'returns'
      ? `- returns ${body}`
      : kind === 'throws'
        ? `- throws ${body}`
        : `- ${kind}: ${body}`;
  });
  return [text.trim(), items.join('\n')]
    .filter(Boolean)
    .join('\n\n')
    .replace(/\{@link ([^}]+)\}/g, '`$1`')
    .replace(/\n(?=.)/g, `\n${indent}`);
}

/** Source on one line, without `export declare`. */
const code = (text) =>
  text
    .replace(/\/\*\*[\s\S]*?\*\//g, '')
    .replace(/\/\/[^\n]*/g, '')
    .replace(/\s+/g, ' ')
    .replace(/\{ /g, '{ ')
    .replace(/;$/, '')
    .replace(/; \}/g, ' }')
    .trim();

/** A member's line and text; undefined for members that are not for programs. */
function member(file, node, owner) {
  const doc = file.before(node.start);
  const name = node.key && file.text.slice(node.key.start, node.key.end);
  if (!node.key || node.key.type === 'PrivateIdentifier' || /#private/.test(name)) return undefined;
  if (node.kind === 'constructor' || node.accessibility === 'private' || /@internal\b/.test(doc))
    return undefined;
  // Disposal is documented at the call that ends the object.
  if (name.includes('Symbol.asyncDispose')) return undefined;
  if (node.kind === 'set') return undefined;
  // Members with libibverbs' or librdmacm's names are documented by its man pages.
  if (!doc && !/^(ibv|rdma)_/.test(owner)) undocumented.push(`${owner}.${name}`);
  const signature = code(file.text.slice(node.start, node.end)).replace(/^(readonly|get|declare) /g, '');
  const fixed = node.kind === 'get' ? signature.replace('()', '') : signature;
  return `- \`${fixed}\`${doc ? `: ${prose(doc, '  ')}` : ''}`;
}

function members(file, list, owner) {
  return list.map((node) => member(file, node, owner)).filter(Boolean);
}

const KINDS = {
  ClassDeclaration: 'class',
  TSInterfaceDeclaration: 'interface',
  TSTypeAliasDeclaration: 'type',
  TSDeclareFunction: 'function',
  FunctionDeclaration: 'function',
  VariableDeclaration: 'constant',
};

/** One entry of the page. */
function entry({ file, node, start, name }) {
  const doc = file.before(start);
  const kind = KINDS[node.type];
  if (!doc) undocumented.push(name);
  const out = [`#### ${kind} \`${name}\``, ''];
  if (kind === 'function') {
    // Overloads are statements of their own.
    const all = file.body.map((n) => n.declaration ?? n).filter((n) => namesOf(n).includes(name));
    const lines = all.map((n) => code(file.text.slice(n.start, n.end)).replace(/^(declare )?function /, ''));
    out.push(...lines.map((line) => `\`${line}\``), '');
  }
  if (doc) out.push(prose(doc), '');
  if (kind === 'class' || kind === 'interface') {
    const heritage = node.type === 'ClassDeclaration' ? node.superClass : node.extends?.[0];
    if (heritage) out.push(`Extends \`${code(file.text.slice(heritage.start, heritage.end))}\`.`, '');
    const list = members(file, node.body.body, name);
    if (list.length > 0) out.push(...list, '');
  } else if (kind === 'type') {
    out.push('```ts', file.text.slice(node.typeAnnotation.start, node.typeAnnotation.end), '```', '');
  } else if (kind === 'constant') {
    out.push(valueOfConstant(file, name), '');
  }
  return out.join('\n');
}

/** The value of a constant, as in its source: names and numbers, or one value. */
function valueOfConstant(declarations, name) {
  const file = open(sourceOf(declarations.path));
  const all = file.body.map((n) => n.declaration ?? n).filter((n) => n.type === 'VariableDeclaration');
  let value = all.flatMap((n) => n.declarations).find((d) => d.id.name === name).init;
  // A constant of the addon: only its type is declared.
  if (!value) return `\`${code(declarations.text.slice(...rangeOfType(declarations, name)))}\``;
  if (value.type === 'TSAsExpression') value = value.expression;
  const slice = (n) => file.text.slice(n.start, n.end);
  if (value.type !== 'ObjectExpression') return `\`${slice(value)}\``;
  const items = value.properties.map((p) => [`\`${slice(p.key)}\` ${slice(p.value)}`, file.before(p.start)]);
  if (items.every(([, about]) => !about)) return `${items.map(([item]) => item).join(', ')}.`;
  return items.map(([item, about]) => `- ${item}${about ? `: ${prose(about, '  ')}` : ''}`).join('\n');
}

/** The type of a constant that is declared without a value: where it stands. */
function rangeOfType(file, name) {
  const all = file.body.map((n) => n.declaration ?? n).filter((n) => n.type === 'VariableDeclaration');
  const { id } = all.flatMap((n) => n.declarations).find((d) => d.id.name === name);
  return [id.typeAnnotation.typeAnnotation.start, id.typeAnnotation.typeAnnotation.end];
}

const sourceOf = (path) =>
  path === entryOf('dgram-native') ? path : path.replace('/dist/', '/src/').replace('.d.ts', '.ts');

/** The numbers of constants.ts: a line for each enum. */
function constants(names, path) {
  const groups = [];
  for (const line of readFileSync(path, 'utf8').split('\n')) {
    const title = /^\/\/ (.*)$/.exec(line);
    const constant = /^export const (\w+) = (.*);$/.exec(line);
    if (title) groups.push({ title: title[1], values: [] });
    else if (constant && names.has(constant[1]))
      groups.at(-1).values.push(`\`${constant[1]}\` ${constant[2]}`);
  }
  return groups.map(({ title, values }) => `- ${title}\\\n  ${values.join(', ')}`).join('\n');
}

const inOrder = (list) => list.sort((a, b) => a.start - b.start);

/** A line of the table of contents: what can be called. */
function contents(path, list) {
  const callable = inOrder(list).filter(({ node }) => ['class', 'function'].includes(KINDS[node.type]));
  const links = callable.map(({ node, name }) => `[\`${name}\`](#${KINDS[node.type]}-${name.toLowerCase()})`);
  return `- ${basename(path, '.d.ts')}: ${links.join(', ') || 'types and constants'}`;
}

/** One package: contents, then a section for each file that something is declared in. */
function sectionsOf(name) {
  const sections = new Map();
  const entries = [entryOf(name), nodeEntryOf(name)].filter((path) => existsSync(path));
  for (const exported of new Set(entries.flatMap(exportsOf))) {
    const found = entries.map((path) => find(path, exported)).find(Boolean);
    if (!found) throw new Error(`${name}: where is ${exported}?`);
    if (!sections.has(found.file.path)) sections.set(found.file.path, []);
    sections.get(found.file.path).push(found);
  }
  // Exports of other packages follow its own.
  const own = (path) => path.startsWith(dirname(entryOf(name)));
  const rank = (path) => (own(path) ? (FIRST.indexOf(basename(path, '.d.ts')) + 100) % 100 : 200);
  const sorted = [...sections].sort(([a], [b]) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const out = [`## @node-roce/${name}`, '', ...sorted.map(([path, list]) => contents(path, list)), ''];
  for (const [path, list] of sorted) {
    const source = relative(root, sourceOf(path));
    const title = own(path) ? basename(source) : source.replace('packages/', '');
    out.push(`### [${title}](../../${source})`, '', headOf(join(root, source)), '');
    if (/^packages\/ibverbs\/src\/(rdma\/)?constants\.ts$/.test(source)) {
      out.push(constants(new Set(list.map((f) => f.name)), join(root, source)), '');
    } else out.push(...inOrder(list).map(entry));
  }
  return out;
}

const joined = (lines) =>
  withLinks(
    `${lines
      .join('\n')
      .replace(/\n{3,}/g, '\n\n')
      .trim()}\n`,
  );

/** "Extends …" with a link to each of the names that the page declares. */
function withLinks(page) {
  const headings = [...page.matchAll(/^#### (\w+) `(\w+)`$/gm)];
  const anchors = new Map(headings.map(([, kind, name]) => [name, `#${kind}-${name.toLowerCase()}`]));
  return page.replace(/^Extends `(.*)`\.$/gm, (line, source) => {
    const names = [...new Set(source.match(/\w+/g))].filter((name) => anchors.has(name));
    return names.length === 0
      ? line
      : `${line.slice(0, -1)}: ${names.map((name) => `[${name}](${anchors.get(name)})`).join(', ')}.`;
  });
}

/** docs/api/README.md. */
const programs = () =>
  joined([
    '# API',
    '',
    'Every class, function and type of [`@node-roce/verbs-api`](#node-roceverbs-api), [`@node-roce/rdmacm`](#node-rocerdmacm) and [`@node-roce/ibverbs`](#node-roceibverbs).',
    'Written by `npm run docs:api` from the docstrings. Calls reject and throw',
    'with a [`RoceError`](#class-roceerror), which names the wrong attribute.',
    '',
    `The other packages: ${PARTS.map((name) => `[${name}](${name}.md)`).join(', ')}.`,
    '',
    ...PROGRAMS.flatMap(sectionsOf),
  ]);

/** docs/api/NAME.md. */
const part = (name) =>
  joined([
    `# API of ${name}`,
    '',
    'Written by `npm run docs:api` from the docstrings. The [first page](README.md) has the packages that most programs use.',
    '',
    ...sectionsOf(name),
  ]);

/** The comment at the head of a source file. */
function headOf(path) {
  const match = /^\/\*\*([\s\S]*?)\*\/\n(?=import|export \{|export \*|\n|\/\*\*|\/\/|const |let )/.exec(
    readFileSync(path, 'utf8'),
  );
  return match ? prose(plain(`*${match[1]}`)) : '';
}

const pages = [['README.md', programs()]];
const required = undocumented.splice(0);
for (const name of PARTS) pages.push([`${name}.md`, part(name)]);

if (required.length > 0) console.error(`without a docstring: ${required.join(', ')}`);
if (required.length > 0) process.exitCode = 1;
if (!process.argv.includes('--check')) {
  const folder = join(root, 'docs/api');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  for (const [name, text] of pages) writeFileSync(join(folder, name), text);
}
