/** Capture files and streams: `@node-roce/pcap` with Node's I/O around it. */
export { openCaptures, type RecordSource } from './merge.ts';
export {
  CaptureReader,
  type CaptureReaderOptions,
  type CaptureSource,
  isCompressed,
  openCapture,
} from './reader.ts';
export { CaptureWriter, createCaptureFile, type PcapFileOptions, type PcapngFileOptions } from './writer.ts';
