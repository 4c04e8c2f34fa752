export {
  defaultInterface,
  hasGainedCapabilities,
  libraryPath,
  type MemoryWay,
  programEnvironment,
  type Refusal,
  whyNot,
} from './launch.ts';
export { type DeviceOptions, DeviceServer } from './server.ts';
export { isListening, networkNamespace, prepareFolder, socketPath } from './sockets.ts';
export { type DeviceStatus, deviceStatus, type HeldDevice, holdDevice, runningDevices } from './status.ts';
