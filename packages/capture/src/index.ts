/** The analysis of RoCE captures. */

export * from './export/anonymize.ts';
export * from './export/comments.ts';
export * from './export/export.ts';
export type { RewriteOptions } from './export/rewrite.ts';
export * from './flow/analysis.ts';
export * from './flow/analyze.ts';
export * from './flow/analyzer.ts';
export type { CmConnection, CmEnd } from './flow/cm.ts';
export * from './flow/csv.ts';
export * from './flow/finding-kinds.ts';
export * from './ladder/kind.ts';
export { type LadderReadOptions, readLadder } from './ladder/read.ts';
export { type LadderOptions, renderLadder } from './ladder/render.ts';
export * from './read/addresses.ts';
export type { Refusal } from './read/decode.ts';
export * from './read/filter.ts';
export type { Crc32 } from './read/icrc-check.ts';
export * from './read/packet.ts';
export * from './read/read.ts';
export * from './read/reader.ts';
export { packetFrame } from './read/super-packet.ts';
export { DEFAULT_LIMITS, type ReportLimits } from './report/data.ts';
export { type ReportOptions, renderReport } from './report/render.ts';
export * from './units.ts';
