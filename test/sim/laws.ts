/** Laws of every run on a path that loses nothing. */

/** Few probes are needless: one when a peer is slower than ever before. So many packets of those received may be copies. */
export const mostDuplicates = (receivedPackets: number): number => 8 + receivedPackets / 200;
