/** Program name and version. */
import { readFileSync } from 'node:fs';

export const version = (): string =>
  (JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string })
    .version;

/** Name and version, for files that the program writes. */
export const programName = (): string => `node-roce ${version()}`;
