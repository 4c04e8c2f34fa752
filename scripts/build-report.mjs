// Puts together what every report carries: the page's script with uPlot and Preact in it, and its style sheet.
//
//   node scripts/build-report.mjs
//
// From packages/capture/src/report/client to packages/capture/dist/report/page, where renderReport takes them.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const capture = fileURLToPath(new URL('../packages/capture', import.meta.url));
// esbuild and what is bundled belong to the package whose page it is.
const require = createRequire(join(capture, 'package.json'));
const { build } = require('esbuild');

/** Their licenses ask to stand in every copy, and each report is one. */
function licenseOf(name) {
  const text = readFileSync(join(dirname(require.resolve(`${name}/package.json`)), 'LICENSE'), 'utf8');
  return `${name}: ${text.replaceAll('*/', '* /').trim()}`;
}

await build({
  entryPoints: { page: join(capture, 'src/report/client/main.tsx') },
  outdir: join(capture, 'dist/report/page'),
  bundle: true,
  minify: true,
  format: 'iife',
  // The language of Debian stable's browsers and the long-term ones.
  target: ['chrome111', 'firefox115', 'safari16.4'],
  charset: 'utf8',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  banner: { js: `/*!\n${['uplot', 'preact'].map(licenseOf).join('\n\n')}\n*/` },
  logLevel: 'warning',
});
