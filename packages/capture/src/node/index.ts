/** The analysis of RoCE captures with Node's I/O around it: files, reports, exports. */
export * from '../index.ts';
export type { LadderReadOptions } from '../ladder/again.ts';
export * from './analyze.ts';
export * from './compare.ts';
export * from './export/anonymize.ts';
export * from './export/comments.ts';
export * from './export/export.ts';
export type { RewriteOptions } from './export/rewrite.ts';
export { readLadder } from './ladder.ts';
export * from './read.ts';
export { type ReportOptions, renderReport, viewerPage } from './report.ts';
