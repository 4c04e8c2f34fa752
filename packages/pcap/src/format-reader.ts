import type { CaptureError } from './errors.ts';
import type { PacketRecord, SectionInfo } from './record.ts';

/** What `CaptureParser` needs of a format. A reader consumes an item only when it has all of it. */
export interface FormatReader {
  /** The item that the last `read` lacked bytes of, in words. */
  readonly reading: string;
  readonly section: SectionInfo | undefined;
  /** The next packet; undefined when more input is needed. */
  read(): PacketRecord | CaptureError | undefined;
}
