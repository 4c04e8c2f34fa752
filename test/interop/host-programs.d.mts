export const HOST_PROGRAMS: readonly string[];
