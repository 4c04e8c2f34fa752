// The number of the sources that the addon is built from; run as a program, prints it. binding.gyp compiles it in, and index.js expects it.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** `build.js` of a package: the number without its sources. */
export const buildModule = () =>
  `// Written when the package was made: the number of the sources that the addon has to be built from.\nexport const BUILD = '${buildId()}';\n`;

/** 16 hexadecimal digits over the sources next to this file, and how they are compiled. */
export function buildId() {
  const hash = createHash('sha256');
  const sources = readdirSync(new URL('src/', import.meta.url)).sort();
  for (const name of ['binding.gyp', ...sources.map((source) => `src/${source}`)]) {
    hash.update(`${name}\0`);
    hash.update(readFileSync(new URL(name, import.meta.url)));
  }
  return hash.digest('hex').slice(0, 16);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(buildId());
