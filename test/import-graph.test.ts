/**
 * The walls between the packages (docs/architecture.md): who may import whom, and which packages know
 * no clock, timer, randomness, socket, process or other part of Node. biome.json carries the same rules
 * for the editor; this test reads the sources, the manifests and the project references, so that the
 * three can't drift apart.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { dirname, join, normalize, relative } from 'node:path';
import { describe, expect, test } from 'vitest';

const root = join(import.meta.dirname, '..');

/** The arrows: what each package may import of the project. */
const arrows: Record<string, readonly string[]> = {
  wire: [],
  pcap: [],
  transport: ['wire'],
  cm: ['wire', 'transport'],
  link: ['wire', 'pcap', 'transport', 'dgram-native'],
  sim: ['wire', 'pcap', 'transport', 'link'],
  'verbs-api': ['wire', 'transport', 'cm', 'link'],
  ibverbs: ['wire', 'transport', 'link', 'verbs-api'],
  capture: ['wire', 'pcap'],
  cli: ['wire', 'pcap', 'transport', 'cm', 'link', 'sim', 'verbs-api', 'capture', 'dgram-native'],
};

/** Sans-IO: time and randomness come in as arguments. `pcap/node` is the one door to Node. */
const sansIo = ['wire', 'transport', 'cm', 'pcap'];
const doors = ['packages/pcap/src/node/'];
/** Bundled at build with all that it imports: development dependencies will do. */
const bundled = ['packages/capture/src/report/client/'];

const forbiddenNames = [
  'process',
  'Buffer',
  'Date',
  'performance',
  'setTimeout',
  'setInterval',
  'setImmediate',
  'queueMicrotask',
  'crypto',
  'fetch',
  'WebSocket',
  'MessageChannel',
  'BroadcastChannel',
  'Worker',
  'console',
  'globalThis',
];

interface Source {
  /** Relative to the root, with `/`. */
  path: string;
  package: string;
  /** Without comments, and with the text of strings that aren't module names left in. */
  code: string;
  imports: string[];
}

// Comments go, strings stay whole: a `//` inside a string is not a comment.
function withoutComments(code: string): string {
  return code.replace(
    /('(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`)|\/\*[\s\S]*?\*\/|\/\/[^\n]*/g,
    (_all, string: string | undefined) => string ?? ' ',
  );
}

const withoutStrings = (code: string) =>
  code.replace(/'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"/g, "''").replace(/`[^`$]*`/g, '``');

function importsOf(code: string): string[] {
  const found = new Set<string>();
  for (const pattern of [
    /^\s*(?:import|export)\b[^'"`;]*?\bfrom\s*(['"])(.+?)\1/gm,
    /^\s*import\s*(['"])(.+?)\1/gm,
    /\b(?:import|require)\s*\(\s*(['"])(.+?)\1/g,
  ]) {
    for (const match of code.matchAll(pattern)) found.add(match[2]!);
  }
  return [...found];
}

function readSources(name: string): Source[] {
  const folder = join(root, 'packages', name, 'src');
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.tsx?$/.test(file) && !file.endsWith('.test.ts'))
    .map((file) => {
      const code = withoutComments(readFileSync(join(folder, file), 'utf8'));
      const path = relative(root, join(folder, file)).replaceAll('\\', '/');
      return { path, package: name, code, imports: importsOf(code) };
    });
}

const packages = readdirSync(join(root, 'packages')).filter((name) =>
  existsSync(join(root, 'packages', name, 'package.json')),
);
const sources = packages.flatMap(readSources);
const scope = '@node-roce/';
const projectPackage = (specifier: string) =>
  specifier.startsWith(scope) ? specifier.slice(scope.length).split('/')[0]! : undefined;
const isBuiltin = (specifier: string) =>
  specifier.startsWith('node:') || builtinModules.includes(specifier.split('/')[0]!);

test('the reader of imports sees every form and no comment', () => {
  const code = withoutComments(`
    import { a } from '@node-roce/wire'; // import 'no'
    import type { b } from "./b.ts"; /* import 'no' */
    import {
      c,
    } from 'c';
    export * from './d.ts';
    import 'e';
    const f = await import('f'); const url = 'https://g';
  `);
  expect(importsOf(code).sort()).toEqual(['./b.ts', './d.ts', '@node-roce/wire', 'c', 'e', 'f']);
  expect(code).toContain('https://g');
});

test('the model imports nothing of what it judges', () => {
  const folder = 'packages/sim/src/model/';
  const model = sources.filter(({ path }) => path.startsWith(folder));
  expect(model.length).toBeGreaterThan(20);
  const wrong = model.flatMap(({ path, imports }) =>
    imports
      .filter((specifier) => specifier !== '@node-roce/wire' && !/^\.\/[\w-]+\.ts$/.test(specifier))
      .map((specifier) => `${path} imports ${specifier}`),
  );
  expect(wrong).toEqual([]);
});

test('every package has its arrows written down', () => {
  expect(packages.filter((name) => arrows[name] === undefined)).toEqual([]);
});

describe.each(packages)('%s', (name) => {
  const own = sources.filter((source) => source.package === name);
  const manifest = JSON.parse(readFileSync(join(root, 'packages', name, 'package.json'), 'utf8'));
  const allowed = arrows[name] ?? [];

  test('imports only what its arrows allow', () => {
    const wrong = own.flatMap((source) =>
      source.imports
        .filter((specifier) => {
          const target = projectPackage(specifier);
          return target !== undefined && !allowed.includes(target);
        })
        .map((specifier) => `${source.path} imports ${specifier}`),
    );
    expect(wrong).toEqual([]);
  });

  test('stays inside its folder, names own files with .ts and declares what it imports', () => {
    const wrong: string[] = [];
    for (const source of own) {
      for (const specifier of source.imports) {
        if (specifier.startsWith('.')) {
          const target = normalize(join(dirname(source.path), specifier)).replaceAll('\\', '/');
          if (!target.startsWith(`packages/${name}/`)) wrong.push(`${source.path} reaches out to ${target}`);
          else if (!/\.(tsx?|json|css)$/.test(specifier)) {
            wrong.push(`${source.path} imports ${specifier} without .ts`);
          }
        } else if (!isBuiltin(specifier)) {
          const dependency = specifier
            .split('/')
            .slice(0, specifier.startsWith('@') ? 2 : 1)
            .join('/');
          const isBundled = bundled.some((folder) => source.path.startsWith(folder));
          const declared = isBundled
            ? { ...manifest.devDependencies, ...manifest.dependencies }
            : manifest.dependencies;
          if (declared?.[dependency] === undefined) {
            wrong.push(`${source.path} imports ${dependency}, which package.json does not name`);
          }
        }
      }
    }
    expect(wrong).toEqual([]);
  });

  test('the manifest and the project references agree with the arrows', () => {
    const dependencies = Object.keys(manifest.dependencies ?? {}).map(projectPackage);
    expect(dependencies.filter((target) => target !== undefined && !allowed.includes(target))).toEqual([]);
    const config = JSON.parse(readFileSync(join(root, 'packages', name, 'tsconfig.json'), 'utf8'));
    const references = ((config.references ?? []) as { path: string }[]).map((r) =>
      r.path.slice('../'.length),
    );
    expect(references.filter((target) => !allowed.includes(target))).toEqual([]);
    const imported = new Set(own.flatMap((source) => source.imports.map(projectPackage)));
    const built = [...imported].filter((target) => target !== undefined && packages.includes(target));
    expect(built.filter((target) => !references.includes(target!))).toEqual([]);
  });
});

describe.each(sansIo.filter((name) => packages.includes(name)))('%s is sans-IO', (name) => {
  const own = sources.filter(
    (source) => source.package === name && !doors.some((door) => source.path.startsWith(door)),
  );

  test('no part of Node, and no package from outside', () => {
    const wrong = own.flatMap((source) =>
      source.imports
        .filter((specifier) => !specifier.startsWith('.') && projectPackage(specifier) === undefined)
        .map((specifier) => `${source.path} imports ${specifier}`),
    );
    expect(wrong).toEqual([]);
  });

  test('no clock, timer, randomness or process', () => {
    // A name counts where it is used as a value: not after a dot, not as a key, not in a comment or string.
    const names = new RegExp(
      `(?<![.\\w$])(?:${forbiddenNames.join('|')})\\b(?!\\s*\\??:)|\\bMath\\.random\\b`,
      'g',
    );
    const wrong = own.flatMap((source) =>
      [...withoutStrings(source.code).matchAll(names)].map((match) => `${source.path}: ${match[0]}`),
    );
    expect(wrong).toEqual([]);
  });
});

test('nothing in the graph is circular', () => {
  const seen = new Set<string>();
  const visit = (name: string, trail: readonly string[]): void => {
    expect(trail, `${[...trail, name].join(' → ')}`).not.toContain(name);
    if (seen.has(name)) return;
    for (const next of arrows[name] ?? []) visit(next, [...trail, name]);
    seen.add(name);
  };
  for (const name of Object.keys(arrows)) visit(name, []);
});
