import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

// A module of its own: a package that needs only a file of this one does not load the addon.
// A bundle may be a CommonJS module, which has no import.meta.url. Bundlers take `new URL(…, import.meta.url)` for a file to copy.
const here = import.meta.url ? dirname(fileURLToPath(import.meta.url)) : __dirname;

// webpack and ncc write the folder of the build in place of import.meta.url. Where that does not exist, files are next to the program.
export const folder = existsSync(here) ? here : dirname(process.argv[1] ?? process.execPath);
