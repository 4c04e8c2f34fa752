/** Capture files and streams: `@node-roce/pcap` with Node's I/O around it. */
export type { RecordSource } from '../batches.ts';
export { isCompressed } from '../compressed/inflated.ts';
export {
  CaptureReader,
  type CaptureReaderOptions,
  type CaptureSource,
  openCapture,
  openCaptures,
} from './reader.ts';
export { CaptureWriter, createCaptureFile, type PcapFileOptions, type PcapngFileOptions } from './writer.ts';
