/** Why a capture could not be read to its end. */
export const CaptureErrorCode = {
  /** The input ended inside a header, a packet or a block. */
  TRUNCATED: 'ERR_PCAP_TRUNCATED',
  /** The first four bytes are no magic number that is known. */
  UNKNOWN_FORMAT: 'ERR_PCAP_UNKNOWN_FORMAT',
  /** Magic 0xa1b2cd34: a variant with longer packet headers, which is not read. */
  MODIFIED: 'ERR_PCAP_MODIFIED',
  /** An unknown format version, so the meaning of the fields is not known. */
  VERSION: 'ERR_PCAP_VERSION',
  /** A packet or block claims more bytes than `maxBlockLength`; or a section has more text than the reader keeps. */
  TOO_LARGE: 'ERR_PCAP_TOO_LARGE',
  /** A pcapng block contradicts itself: lengths that disagree, a body too short for its fields. */
  BAD_BLOCK: 'ERR_PCAP_BAD_BLOCK',
  /** A pcapng option runs over its block's end or has a length its type does not allow. */
  BAD_OPTION: 'ERR_PCAP_BAD_OPTION',
  /** A pcapng block refers to an interface that its section has not described. */
  UNKNOWN_INTERFACE: 'ERR_PCAP_UNKNOWN_INTERFACE',
  /** A pcapng section describes more interfaces than the reader keeps. */
  TOO_MANY_INTERFACES: 'ERR_PCAP_TOO_MANY_INTERFACES',
  /** The input is compressed (the parser inflates nothing), or its compressed stream is damaged. */
  COMPRESSED: 'ERR_PCAP_COMPRESSED',
} as const;
export type CaptureErrorCode = (typeof CaptureErrorCode)[keyof typeof CaptureErrorCode];

/** Damage in a capture: a value on `CaptureParser.error`, thrown only by the async readers. */
export class CaptureError extends Error {
  readonly code: CaptureErrorCode;
  /** Byte of the (inflated) input at which the item that could not be read starts. */
  readonly offset: number;

  constructor(code: CaptureErrorCode, offset: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'CaptureError';
    this.code = code;
    this.offset = offset;
  }
}
