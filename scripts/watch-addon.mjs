// Preloaded into each process by test-sanitized.mjs: leaves a file with the path of the addon, as soon as the process has loaded one. At its
// end would be too late: processes of tests are killed. By PID namespace and process: each test file has a namespace of its own, and the
// same numbers in it.
import { readlinkSync, realpathSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const USUAL = new URL('../native/build/Release/dgram_native.node', import.meta.url).pathname;
const SANITIZED = new URL('../native/sanitized/build/Release/dgram_native.node', import.meta.url).pathname;

const { dlopen } = process;

function leave(kind, text) {
  const [namespace] = /\d+/.exec(readlinkSync('/proc/self/ns/pid'));
  writeFileSync(join(process.env.ROCE_ADDON_REPORTS, `${kind}.${namespace}.${process.pid}`), text);
}

process.dlopen = function (module, path, ...flags) {
  const result = dlopen.call(this, module, path, ...flags);
  const file = realpathSync(path);
  if (file === SANITIZED) leave('sanitized', '');
  if (file === USUAL) {
    const command = process.argv.join(' ');
    leave('usual', `process ${process.pid} loaded the addon without sanitizers: ${command}\n`);
  }
  return result;
};
