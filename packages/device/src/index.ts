export { defaultAddress, libraryPath, programEnvironment, type Refusal, whyNot } from './launch.ts';
export { type DeviceOptions, DeviceServer, isListening, prepareFolder, socketPath } from './server.ts';
