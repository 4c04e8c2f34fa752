/** What this program is called, and which one it is. */
import { readFileSync } from 'node:fs';

export const version = (): string =>
  (JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string })
    .version;

/** As it signs what it writes. */
export const programName = (): string => `node-roce ${version()}`;
