// Puts the programs of examples/ into the pages of docs/guide/ that quote them: the code block below a line
// `<!-- examples/NAME.mjs -->` becomes the text of that file. `--check` writes nothing and fails where a block differs.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const QUOTE = /<!-- (examples\/[\w/.-]+\.mjs) -->\n```js\n[\s\S]*?```/g;

/** A page with the current text of every program that it quotes. */
export const withQuotes = (page) =>
  page.replace(
    QUOTE,
    (_, path) => `<!-- ${path} -->\n\`\`\`js\n${readFileSync(join(root, path), 'utf8')}\`\`\``,
  );

/** The paths of the programs that a page quotes. */
export const quotedIn = (page) => [...page.matchAll(QUOTE)].map(([, path]) => path);

/** The pages of the guide: path from the root, and text. */
export const guidePages = () =>
  readdirSync(join(root, 'docs/guide'))
    .map((name) => `docs/guide/${name}`)
    .map((path) => ({ path, text: readFileSync(join(root, path), 'utf8') }));

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const { path, text } of guidePages()) {
    const current = withQuotes(text);
    if (current === text) continue;
    if (!process.argv.includes('--check')) writeFileSync(join(root, path), current);
    else {
      console.error(`${path} quotes an older program: node scripts/guide-quotes.mjs`);
      process.exitCode = 1;
    }
  }
}
