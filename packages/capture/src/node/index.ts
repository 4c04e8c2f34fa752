/** The analysis of RoCE captures with Node's I/O around it: files, reports, exports. */
// biome-ignore lint/performance/noReExportAll: this entry has all of the other one.
export * from '../index.ts';
export type { LadderReadOptions } from '../ladder/again.ts';
export { analyzeCapture } from './analyze.ts';
export { type CompareOptions, compareCaptures, NothingInCommonError } from './compare.ts';
export { Anonymizer } from './export/anonymize.ts';
export { Commentator } from './export/comments.ts';
export { type ExportOptions, type ExportResult, exportPackets } from './export/export.ts';
export type { RewriteOptions } from './export/rewrite.ts';
export { readLadder } from './ladder.ts';
export { readPackets } from './read.ts';
export { type ReportOptions, renderComparison, renderReport, viewerPage } from './report.ts';
