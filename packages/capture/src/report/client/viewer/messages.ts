/** Messages between the page and the worker that reads captures. */
import type { LadderPacket } from '../../../flow/analysis.ts';
import type { ReportConnection, ReportData } from '../../data.ts';
import type { TimeWindow } from '../state.ts';

/** To the worker: the files of one capture. */
export interface Order {
  files: readonly File[];
  /** Only the packets of a connection in a window of time; else a report. */
  packets?: { connection: ReportConnection; window: TimeWindow };
}

/** From the worker. */
export type News =
  | { type: 'progress'; read: number; total: number; packets: number }
  | { type: 'report'; data: ReportData }
  | { type: 'packets'; packets: LadderPacket[] }
  /** A sentence: why there is no report. */
  | { type: 'failure'; text: string };
