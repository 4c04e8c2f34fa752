// Preloaded into each process by test-sanitized.mjs: leaves a file with the path of the addon that the process has loaded.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const USUAL = new URL('../native/build/Release/dgram_native.node', import.meta.url).pathname;
const SANITIZED = new URL('../native/sanitized/build/Release/dgram_native.node', import.meta.url).pathname;

process.on('exit', () => {
  const maps = readFileSync('/proc/self/maps', 'utf8');
  const leave = (kind, text) =>
    writeFileSync(join(process.env.ROCE_ADDON_REPORTS, `${kind}.${process.pid}`), text);
  if (maps.includes(SANITIZED)) leave('sanitized', '');
  const command = process.argv.join(' ');
  if (maps.includes(USUAL))
    leave('usual', `process ${process.pid} loaded the addon without sanitizers: ${command}\n`);
});
