import { fileURLToPath } from 'node:url';

// A module of its own: a package that needs only a file of this one does not load the addon.
// A bundle may be a CommonJS module, which has no import.meta.url.
export const folder = import.meta.url
  ? fileURLToPath(new URL('.', import.meta.url)).replace(/\/$/, '')
  : __dirname;
