/** Captures in a browser: `@node-roce/pcap` with files that the reader of a page chose. */
export { openBlob } from './blob.ts';
