// Puts together what every report carries: the page's script with uPlot and Preact in it, and its style sheet.
//
//   node scripts/build-report.mjs
//
// From packages/capture/src/report/client to packages/capture/dist/report/page, where renderReport takes them.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const capture = fileURLToPath(new URL('../packages/capture', import.meta.url));
// esbuild belongs to the package whose page it builds.
const { build } = createRequire(join(capture, 'package.json'))('esbuild');

await build({
  entryPoints: { page: join(capture, 'src/report/client/main.tsx') },
  outdir: join(capture, 'dist/report/page'),
  bundle: true,
  minify: true,
  format: 'iife',
  // What Debian stable's and the long-term browsers understand.
  target: ['chrome110', 'firefox115', 'safari16.4'],
  charset: 'utf8',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  // Their licenses ask that the notices stay with the copies.
  legalComments: 'inline',
  banner: {
    js: '/*! Contains uPlot, (c) Leon Sorokin, and Preact, (c) Jason Miller; both under the MIT License. */',
  },
  logLevel: 'warning',
});
