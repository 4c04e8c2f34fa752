// Writes the man page of roce, packages/cli/dist/roce.1, from the declarations of its commands.
import { writeFileSync } from 'node:fs';
import { commands } from '../packages/cli/dist/commands.js';
import { manPage } from '../packages/cli/dist/manual/man-page.js';
import { version } from '../packages/cli/dist/version.js';

writeFileSync(new URL('../packages/cli/dist/roce.1', import.meta.url), manPage(commands, version()));
