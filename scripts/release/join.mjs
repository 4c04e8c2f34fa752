/**
 * Joins the modules of a package into few files: Node needs a third of a millisecond for each file of an import, whatever its size. Declarations
 * stay as they are. A module that is named by its place (`new URL('./worker.js', import.meta.url)`) has to be an export: a file at the new place
 * imports it.
 */
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';

/** Packages that `import 'node-roce/…'` loads. Others name more files by their place. */
export const JOINED = [
  'wire',
  'transport',
  'cm',
  'link',
  'pcap',
  'verbs-api',
  'rdmacm',
  'rsocket',
  'ibverbs',
].map((name) => `@node-roce/${name}`);

/** A module that a thread runs, by its place next to the module that starts it. */
const PLACE = /new URL\("\.\/([\w-]+\.js)", import\.meta\.url\)/g;

/** A class that names itself: esbuild gives it another name, which stack traces and `console.log` would show. */
const RENAMED = /\bvar (\w+) = class (_\1)\b/g;

/** The text with each class under its own name, inside of itself as well. */
const withNames = (text) =>
  [...text.matchAll(RENAMED)].reduce(
    (named, [, name, other]) => named.replaceAll(new RegExp(`(?<![#.\\w])${other}\\b`, 'g'), name),
    text,
  );

/**
 * @param {string} root of the repository
 * @param {string} place the copy of the package: its folder `dist` changes
 * @param {object} exports of its manifest
 */
export function joinModules(root, place, exports) {
  const { buildSync } = createRequire(join(root, 'packages/capture/package.json'))('esbuild');
  const dist = join(place, 'dist');
  const entryPoints = Object.values(exports)
    .map((entry) => join(place, entry.default ?? entry))
    .filter((path) => path.endsWith('.js') && existsSync(path));
  const { outputFiles } = buildSync({
    ...{ entryPoints, outdir: dist, outbase: dist, write: false, bundle: true, splitting: true },
    ...{ format: 'esm', platform: 'neutral', target: 'es2022', packages: 'external', logLevel: 'error' },
    ...{ chunkNames: 'chunk-[hash]', legalComments: 'none', absWorkingDir: place },
  });
  for (const file of readdirSync(dist, { recursive: true }))
    if (file.endsWith('.js')) rmSync(join(dist, file));
  for (const { path, text: joined } of outputFiles) {
    const text = withNames(joined);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    for (const [, name] of text.matchAll(PLACE)) {
      const entry = entryPoints.find((entryPoint) => basename(entryPoint) === name);
      const stub = join(dirname(path), name);
      if (stub !== entry) writeFileSync(stub, `import './${relative(dirname(path), entry)}';\n`);
    }
  }
}
