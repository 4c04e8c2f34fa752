/** The classic file's layout: draft-ietf-opsawg-pcap §4 and §5, pcap-savefile(5). */

/** First word of the file, in the writer's byte order; it also determines the timestamps' unit. */
export const PcapMagic = {
  MICROSECONDS: 0xa1b2c3d4,
  NANOSECONDS: 0xa1b23c4d,
  /** Old patched libpcaps: packet headers have extra fields. Refused. */
  MODIFIED: 0xa1b2cd34,
} as const;

/** Bytes of the file header: magic, version, two reserved words, snapLength, link type. */
export const PCAP_HEADER = 24;
/** Bytes before each packet: seconds, fraction, captured length, original length. */
export const PCAP_PACKET_HEADER = 16;

export const PCAP_VERSION_MAJOR = 2;
export const PCAP_VERSION_MINOR = 4;

/** The file header's last word: link type in the low 16 bits, FCS length in the high ones. */
export const LINK_TYPE_MASK = 0xffff;
export const FCS_LENGTH_PRESENT = 0x0400_0000;

/** Snapshot length that means "everything" to most tools (libpcap's MAXIMUM_SNAPLEN). */
export const DEFAULT_SNAP_LENGTH = 262_144;
