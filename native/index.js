// The addon, if it is of the same sources as this package.
import { BUILD } from './build.js';
import { loadAddon, staleError, thisMachine } from './load.js';

const addon = loadAddon();
// Of other sources it may work, and be wrong: words of a batch that moved, a check that has been mended since.
if (addon.build !== BUILD) throw staleError(addon.build, BUILD, thisMachine());

export const {
  build,
  Capture,
  Descriptors,
  Doorbells,
  FrameSocket,
  Socket,
  Port,
  Wake,
  IdWindow,
  InterfaceWatcher,
  LocalSocket,
  copier,
  copyBatch,
  crc32,
  crc32Copy,
  createSharedFile,
  descriptorPair,
  features,
  layout,
  mapSharedFile,
  now,
  peerProcess,
  ProcessMemory,
  processor,
  receiveDescriptor,
  sendDescriptor,
  setCrcImplementation,
  setSlice,
  solveId,
  unmapSharedFile,
  XdpPort,
  wakeWaiting,
  yieldProcessor,
} = addon;
