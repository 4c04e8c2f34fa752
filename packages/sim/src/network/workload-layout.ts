/** The arena of each side of a reliable workload. The peer writes `WRITTEN` and `ATOMIC`, reads `WRITTEN` and `SOURCE`. */

/** Longest message, bytes. */
export const MAX_MESSAGE_BYTES = 6000;
export const SLOT = 6144;
/** Requests a side has posted and not seen completed. */
export const DEPTH = 8;
export const RECEIVES = 10;

export const SOURCE = { at: 0, bytes: 65_536 };
export const RECEIVED = { at: 65_536, bytes: RECEIVES * SLOT };
export const ANSWERS = { at: 131_072, bytes: DEPTH * SLOT };
export const WRITTEN = { at: 184_320, bytes: 16_384 };
export const ATOMIC = { at: 200_704, bytes: 64 };
export const ARENA_BYTES = 204_800;
