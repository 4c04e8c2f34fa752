// Puts together what every report carries: the page's script with uPlot and Preact in it, and its style sheet; and viewer.html, the
// page that analyzes captures in a browser.
//
//   node scripts/build-report.mjs
//
// From packages/capture/src/report/client to packages/capture/dist/report/page, where renderReport takes them.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const capture = fileURLToPath(new URL('../packages/capture', import.meta.url));
// esbuild and what is bundled belong to the package whose page it is.
const require = createRequire(join(capture, 'package.json'));
const { build } = require('esbuild');

/** Their licenses ask to stand in every copy, and each report is one. */
function licenseOf(name) {
  const owner = name === 'fzstd' ? 'pcap' : 'capture';
  const text = readFileSync(join(capture, '..', owner, 'node_modules', name, 'LICENSE'), 'utf8');
  return `${name}: ${text.replaceAll('*/', '* /').trim()}`;
}

const options = {
  bundle: true,
  minify: true,
  format: 'iife',
  // The language of Debian stable's browsers and the long-term ones.
  target: ['chrome111', 'firefox115', 'safari16.4'],
  charset: 'utf8',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  logLevel: 'warning',
};
const licenses = (...names) => ({ js: `/*!\n${names.map(licenseOf).join('\n\n')}\n*/` });
const client = join(capture, 'src/report/client');
const pages = join(capture, 'dist/report/page');
const { version } = JSON.parse(readFileSync(join(capture, 'package.json'), 'utf8'));
const GENERATOR = `node-roce ${version}`;

await build({
  ...options,
  entryPoints: { page: join(client, 'main.tsx') },
  outdir: pages,
  banner: licenses('uplot', 'preact'),
});

/** A bundle's text by the end of its name. */
async function bundled(entry, more) {
  const { outputFiles } = await build({
    ...options,
    entryPoints: [join(client, entry)],
    outdir: pages,
    write: false,
    ...more,
  });
  return (extension) => outputFiles.find(({ path }) => path.endsWith(extension)).text;
}

/** Symbols of `await using`, for browsers without them: esbuild translates the statement, not the names of methods. */
const DISPOSAL = `for (const name of ['dispose', 'asyncDispose']) Symbol[name] ??= Symbol.for('Symbol.' + name);`;

// The page without an installation: the worker's script stands in it as a text.
const worker = await bundled('viewer/worker.ts', {
  banner: { js: `${licenses('fzstd').js}\n${DISPOSAL}` },
  define: { GENERATOR: JSON.stringify(GENERATOR) },
});
const viewer = await bundled('viewer/main.tsx', { banner: licenses('uplot', 'preact') });
const { htmlPage } = await import('../packages/capture/dist/report/page.js');
const { embedJson } = await import('../packages/capture/dist/report/escape.js');
const script = viewer('.js');
writeFileSync(
  join(pages, 'viewer.html'),
  htmlPage({
    title: 'RoCE captures in the browser',
    generator: GENERATOR,
    style: viewer('.css'),
    script,
    hash: createHash('sha256').update(script).digest('base64'),
    policy: 'worker-src blob:',
    body: `<div id="page"><noscript>This page needs its script: it reads captures in the browser.</noscript></div>
<script type="application/json" id="worker">${embedJson(worker('.js'))}</script>`,
  }),
);
