/**
 * pcap and pcapng, read and write, without I/O and without Node: bytes in, packets out, and back.
 * Files and streams are in `@node-roce/pcap/node`.
 */
export type { RecordSource } from './batches.ts';
export type { CaptureEncoder, PacketInput, PacketTime } from './encoder.ts';
export { CaptureError, CaptureErrorCode } from './errors.ts';
export { LinkType, linkTypeName } from './linktype.ts';
export { mergeCaptures, type Openable } from './merge.ts';
export { CaptureParser, type CaptureParserOptions, DEFAULT_MAX_BLOCK_LENGTH } from './parser.ts';
export { PcapEncoder, type PcapOptions } from './pcap-encoder.ts';
export { DEFAULT_SNAP_LENGTH } from './pcap-format.ts';
export { type InterfaceOptions, PcapngEncoder, type SectionOptions } from './pcapng-encoder.ts';
export {
  type ByteOrder,
  type CaptureFormat,
  type Direction,
  type InterfaceInfo,
  type InterfaceStatistics,
  PacketRecord,
  type SectionInfo,
} from './record.ts';
