// Loads the addon: built here (build/Release) or shipped ready-made (prebuilds).
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { BUILD } from './build.js';

const require = createRequire(import.meta.url);

function load() {
  try {
    return require('node-gyp-build')(fileURLToPath(new URL('.', import.meta.url)));
  } catch (cause) {
    const where = `${process.platform}-${process.arch}, Node ${process.version}`;
    const advice =
      process.platform === 'linux'
        ? 'Build it with `npm run build:native` (it needs a C++17 compiler, make and Python 3).'
        : 'It exists for Linux only; the dgram link between node-roce peers works without it.';
    throw Object.assign(
      new Error(`@node-roce/dgram-native could not be loaded on ${where}. ${advice}`, { cause }),
      {
        code: 'ERR_ROCE_NO_ADDON',
      },
    );
  }
}

const addon = load();
// Of other sources it may work, and be wrong: words of a batch that moved, a check that has been mended since.
if (addon.build !== BUILD) {
  const message = `the addon of @node-roce/dgram-native was built from other sources than this package's (${addon.build ?? 'older ones'}, expected ${BUILD}). Build it again with \`npm run build:native\`.`;
  throw Object.assign(new Error(message), { code: 'ERR_ROCE_STALE_ADDON' });
}

export const {
  build,
  Capture,
  Socket,
  Port,
  Wake,
  IdWindow,
  InterfaceWatcher,
  copyBatch,
  crc32,
  crc32Copy,
  features,
  layout,
  now,
  setCrcImplementation,
  solveId,
} = addon;
