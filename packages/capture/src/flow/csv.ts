/** Messages and findings as CSV (RFC 4180), for spreadsheets and data frames. Times are seconds, frames are numbers. */
import type { Finding, Message } from './analysis.ts';

type Column<T> = readonly [name: string, value: (item: T) => string | number | undefined];

const seconds = (nanoseconds: number): string => (nanoseconds / 1e9).toFixed(9);

const MESSAGE: readonly Column<Message>[] = [
  ['connection', ({ connection }) => connection],
  ['message', ({ id }) => id],
  ['from', ({ from }) => from],
  ['operation', ({ operation }) => operation],
  ['bytes', ({ bytes }) => bytes],
  ['first_psn', ({ firstPsn }) => firstPsn],
  ['last_psn', ({ lastPsn }) => lastPsn],
  ['packets', ({ packets }) => packets],
  ['retransmitted', ({ retransmitted }) => retransmitted],
  ['first_frame', ({ firstFrame }) => firstFrame],
  ['last_frame', ({ lastFrame }) => lastFrame],
  ['start', ({ start }) => seconds(start)],
  ['end', ({ end }) => seconds(end)],
  ['latency', ({ latency }) => (latency === undefined ? undefined : seconds(latency))],
  ['outcome', ({ outcome }) => outcome],
  ['failure', ({ failure }) => failure],
];

const FINDING: readonly Column<Finding>[] = [
  ['severity', ({ severity }) => severity],
  ['kind', ({ kind }) => kind],
  ['connection', ({ connection }) => connection],
  ['text', ({ text }) => text],
  ['hint', ({ hint }) => hint],
  ['start', ({ start }) => seconds(start)],
  ['end', ({ end }) => seconds(end)],
  ['frame_count', ({ frameCount }) => frameCount],
  ['frames', ({ frames }) => frames.join(' ')],
];

/** The names of the columns of `messageCsv`, as a line without its end. */
export const MESSAGE_CSV_HEADER: string = MESSAGE.map(([name]) => name).join(',');
/** The names of the columns of `findingCsv`. */
export const FINDING_CSV_HEADER: string = FINDING.map(([name]) => name).join(',');

/** A message as a line of CSV without its end; unknown fields are empty. */
export const messageCsv = (message: Message): string => line(MESSAGE, message);

/** A finding as a line of CSV; `frames` separated by blanks. */
export const findingCsv = (finding: Finding): string => line(FINDING, finding);

function line<T>(columns: readonly Column<T>[], item: T): string {
  return columns.map(([, value]) => field(value(item))).join(',');
}

function field(value: string | number | undefined): string {
  const text = value === undefined ? '' : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
