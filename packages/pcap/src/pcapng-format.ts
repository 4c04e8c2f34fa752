/** The pcapng layout: draft-ietf-opsawg-pcapng, sections as given. */

/** §10.1: the blocks that are read or written; all others are passed over. */
export const BlockType = {
  /** §4.1. The same in both byte orders. */
  SECTION_HEADER: 0x0a0d0d0a,
  /** §4.2 */
  INTERFACE_DESCRIPTION: 1,
  /** Appendix A: obsolete, but old files have it. */
  PACKET: 2,
  /** §4.4 */
  SIMPLE_PACKET: 3,
  /** §4.5 */
  NAME_RESOLUTION: 4,
  /** §4.6 */
  INTERFACE_STATISTICS: 5,
  /** §4.3 */
  ENHANCED_PACKET: 6,
} as const;

const blockNames = new Map<number, string>([
  [BlockType.SECTION_HEADER, 'section header block'],
  [BlockType.INTERFACE_DESCRIPTION, 'interface description block'],
  [BlockType.PACKET, 'packet block'],
  [BlockType.SIMPLE_PACKET, 'simple packet block'],
  [BlockType.NAME_RESOLUTION, 'name resolution block'],
  [BlockType.INTERFACE_STATISTICS, 'interface statistics block'],
  [BlockType.ENHANCED_PACKET, 'enhanced packet block'],
]);

export function blockName(type: number): string {
  return blockNames.get(type) ?? `block of type 0x${type.toString(16)}`;
}

/** §4.1: the word after a section header's length that determines the section's byte order. */
export const BYTE_ORDER_MAGIC = 0x1a2b3c4d;

/** §3.1: type and length before the body, the length again after it. */
export const BLOCK_HEADER = 8;
export const BLOCK_OVERHEAD = 12;

/** Bytes of the fixed fields of each block's body, before packet data and options. */
export const BodyLength = {
  SECTION_HEADER: 16,
  INTERFACE_DESCRIPTION: 8,
  ENHANCED_PACKET: 20,
  PACKET: 20,
  SIMPLE_PACKET: 4,
  INTERFACE_STATISTICS: 12,
} as const;

/** Option codes. §3.5 for those of every block, the block's own section for the others. */
export const OptionCode = {
  END: 0,
  COMMENT: 1,
  // Section header, §4.1
  SHB_HARDWARE: 2,
  SHB_OS: 3,
  SHB_APPLICATION: 4,
  // Interface description, §4.2
  IF_NAME: 2,
  IF_DESCRIPTION: 3,
  IF_SPEED: 8,
  IF_TSRESOL: 9,
  IF_FILTER: 11,
  IF_OS: 12,
  IF_FCSLEN: 13,
  IF_TSOFFSET: 14,
  IF_HARDWARE: 15,
  // Enhanced packet, §4.3; the obsolete packet block has the same code for its flags
  EPB_FLAGS: 2,
  EPB_DROPCOUNT: 4,
  // Interface statistics, §4.6
  ISB_STARTTIME: 2,
  ISB_ENDTIME: 3,
  ISB_IFRECV: 4,
  ISB_IFDROP: 5,
  ISB_FILTERACCEPT: 6,
  ISB_OSDROP: 7,
  ISB_USRDELIV: 8,
} as const;

/** §4.2: timestamps are in microseconds without if_tsresol. */
export const DEFAULT_TSRESOL = 6;

/** Bytes to the next multiple of four (§3.1, §3.5: data and option values are padded so). */
export function padded(length: number): number {
  return Math.ceil(length / 4) * 4;
}
