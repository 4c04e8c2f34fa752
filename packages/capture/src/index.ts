/** What happened in a RoCE capture. */

export * from './flow/analysis.ts';
export * from './read/packet.ts';
