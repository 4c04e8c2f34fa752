/** `npm run bench -- --page FILE`: runs as one HTML file that needs nothing but a browser. Observable Plot draws the charts. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { pageData } from './data.mjs';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const RESULTS = at('../results');

/** The license of each bundled package: they ask to stand in every copy. */
function licenses(inputs) {
  const folders = inputs
    .map((path) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(path)?.[0])
    .filter(Boolean);
  return [...new Set(folders)].sort().map((folder) => {
    const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
    const text = file === undefined ? '' : readFileSync(join(folder, file), 'utf8').trim();
    return `${folder.replace(/^.*node_modules\//, '')}: ${text.replaceAll('*/', '* /')}`;
  });
}

/** The page's script with what it imports. */
async function bundled() {
  // esbuild belongs to the package with the other page.
  const { build } = createRequire(at('../../packages/capture/package.json'))('esbuild');
  const { outputFiles, metafile } = await build({
    entryPoints: [at('client.mjs')],
    absWorkingDir: at('../..'),
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    format: 'iife',
    charset: 'utf8',
    legalComments: 'none',
    logLevel: 'warning',
  });
  const notice = licenses(Object.keys(metafile.inputs).map((path) => at(`../../${path}`)));
  return `/*!\n${notice.join('\n\n')}\n*/\n${outputFiles[0].text}`.replaceAll('</script', '<\\/script');
}

/** Runs whose JSON lies in bench/results. */
function recorded() {
  const files = readdirSync(RESULTS).map((name) => join(RESULTS, name));
  // Those of other measurements have no rows.
  return files.map((file) => JSON.parse(readFileSync(file, 'utf8'))).filter(({ rows }) => rows !== undefined);
}

/**
 * The page of these files, or of bench/results where none is named. Its policy lets run the one script whose hash it names, and forbids
 * every connection.
 */
export async function renderPage(files) {
  const reports = files.length > 0 ? files.map((file) => JSON.parse(readFileSync(file, 'utf8'))) : recorded();
  const data = JSON.stringify(pageData(reports)).replaceAll('<', '\\u003c');
  const script = await bundled();
  const hash = createHash('sha256').update(script).digest('base64');
  const policy = `default-src 'none'; script-src 'sha256-${hash}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>node-roce: measurements</title>
<link rel="icon" href="data:,">
<style>
${readFileSync(at('style.css'), 'utf8')}</style>
</head>
<body>
<main>
<h1>node-roce: measurements</h1>
<ul id="runs"></ul>
<div id="rows"></div>
<noscript>The charts need their script.</noscript>
</main>
<script type="application/json" id="data">${data}</script>
<script>${script}</script>
</body>
</html>
`;
}
