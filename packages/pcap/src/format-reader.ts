import type { CaptureError } from './errors.ts';
import type { PacketRecord, SectionInfo } from './record.ts';

/** The interface of a format's reader, for `CaptureParser`. A reader consumes an item only when it has all of it. */
export interface FormatReader {
  /** The item that the last `read` lacked bytes of, in words. */
  readonly reading: string;
  readonly section: SectionInfo | undefined;
  /** The next packet; undefined when more input is needed. */
  read(): PacketRecord | CaptureError | undefined;
}
