import { fileURLToPath } from 'node:url';

// A module of its own: a package that needs only a file of this one does not load the addon.
export const folder = fileURLToPath(new URL('.', import.meta.url)).replace(/\/$/, '');
