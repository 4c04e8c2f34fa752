// Draws docs/terminal.svg, the picture of README.md: two programs of the guide that talk, and what `roce flows` prints about a capture.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));

/** The programs of docs/guide/first-program.md with their output (test/repo/guide.test.ts runs them). */
const SERVER = ['$ node examples/guide/server.mjs', 'listening at 127.0.51.1:7471'];
const CLIENT = ['$ node examples/guide/client.mjs', 'hello → HELLO', 'world → WORLD'];

const [WIDTH, LINE, GAP, PADDING] = [980, 19, 12, 16];
const heightOf = (lines) => 2 * PADDING + LINE * lines.length - 4;

const escaped = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

/** A terminal with its lines, as elements of SVG. */
function terminal(lines, x, y, width, height) {
  const texts = lines.map((line, i) => {
    const style = line.startsWith('$ ') ? ' class="command"' : '';
    const place = `x="${x + PADDING}" y="${y + PADDING + 12 + LINE * i}"`;
    return `  <text${style} ${place} xml:space="preserve">${escaped(line)}</text>`;
  });
  return [`  <rect x="${x}" y="${y}" width="${width}" height="${height}" rx="8"/>`, ...texts];
}

/** The picture, with the first lines that `roce flows` printed. */
export function terminalPicture(flows) {
  const [verdict, summary] = flows.split('\n\n').map((part) => part.split('\n'));
  const analysis = ['$ roce flows trace.pcapng', ...verdict, '', ...summary];
  const [above, below] = [heightOf(CLIENT), heightOf(analysis)];
  const half = (WIDTH - 2 - GAP) / 2;
  const height = 2 + above + GAP + below;
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-labelledby="t d">`,
    '  <title id="t">Three terminals: a server and a client that talk, and a capture that is explained</title>',
    '  <desc id="d">The client sends hello and world, and the server answers in capitals. roce flows names the cause of the trouble in a capture, and the packets that prove it.</desc>',
    '  <style>rect { fill: #0d1117; stroke: #57606a; } text { fill: #e6edf3; font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; } .command { fill: #7ee787; }</style>',
    ...terminal(SERVER, 1, 1, half, above),
    ...terminal(CLIENT, 1 + half + GAP, 1, half, above),
    ...terminal(analysis, 1, 1 + above + GAP, WIDTH - 2, below),
    '</svg>',
  ].join('\n')}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const roce = join(root, 'packages/cli/bin/roce.js');
  const capture = join(root, 'test/fixtures/captures/corrupt_A.pcap');
  const flows = execFileSync(process.execPath, [roce, 'flows', capture], { encoding: 'utf8' });
  writeFileSync(join(root, 'docs/terminal.svg'), terminalPicture(flows));
}
