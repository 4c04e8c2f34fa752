// Preloaded into each process by test-sanitized.mjs: leaves a file that says which addon the process has loaded.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

process.on('exit', () => {
  const maps = readFileSync('/proc/self/maps', 'utf8');
  if (!maps.includes('dgram_native.node')) return;
  const kind = maps.includes('native/sanitized/build') ? 'sanitized' : 'not-sanitized';
  const text =
    kind === 'sanitized'
      ? ''
      : `process ${process.pid} loaded an addon without sanitizers: ${process.argv}\n`;
  writeFileSync(join(process.env.ROCE_ADDON_REPORTS, `${kind}.${process.pid}`), text);
});
