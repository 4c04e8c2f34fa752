/** Packets that cross an answer of the tester. */

/** ms in which a packet that the device sent before an answer reached it may still arrive. */
export const CROSSING = 10;
