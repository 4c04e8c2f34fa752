/** Messages between the page and the worker that reads captures. */
import type { ReportData } from '../../data.ts';

/** To the worker: the files of one capture. */
export interface Order {
  files: readonly File[];
}

/** From the worker. */
export type News =
  | { type: 'progress'; read: number; total: number; packets: number }
  | { type: 'report'; data: ReportData }
  /** A sentence: why there is no report. */
  | { type: 'failure'; text: string };
