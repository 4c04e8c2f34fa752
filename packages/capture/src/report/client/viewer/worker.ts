/** The worker of the page: reads captures and analyzes them, away from the thread that draws. */
import { mergeCaptures, type RecordSource } from '@node-roce/pcap';
import { openBlob } from '@node-roce/pcap/web';
import { analyzeRecords } from '../../../flow/analyze.ts';
import { ladderBy } from '../../../ladder/again.ts';
import { readRecords } from '../../../read/read.ts';
import { counted } from '../../../units.ts';
import { DEFAULT_LIMITS, toReportData } from '../../data.ts';
import type { News, Order } from './messages.ts';

/** The name and version of the program, from the bundler. */
declare const GENERATOR: string;

const tell = (news: News) => postMessage(news);

addEventListener('message', ({ data }: MessageEvent<Order>) => {
  const { packets } = data;
  const work = packets === undefined ? analyze(data.files) : packetsOf(data.files, packets);
  work.then(tell, (error: unknown) => tell({ type: 'failure', text: failureOf(error, data.files) }));
});

/** Packets of a ladder that are read again at once. */
const MOST_PACKETS = 20_000;

async function packetsOf(
  files: readonly File[],
  { connection, window: { from, to } }: NonNullable<Order['packets']>,
): Promise<News> {
  await using capture = opened(files);
  const packets = await ladderBy((options) => readRecords(capture, options), connection, {
    filter: { from, to },
    most: MOST_PACKETS,
  });
  return { type: 'packets', packets: packets.slice(0, MOST_PACKETS) };
}

/** The files as one capture; `onRead` gets the bytes read so far. */
function opened(files: readonly File[], onRead?: (bytes: number) => void): RecordSource {
  const read = files.map(() => 0);
  const open = (file: File, i: number): RecordSource =>
    openBlob(file, {
      onRead: (bytes) => {
        read[i] = bytes;
        onRead?.(read.reduce((sum, each) => sum + each, 0));
      },
    });
  return files.length === 1
    ? open(files[0], 0)
    : mergeCaptures(files.map((file, i) => ({ name: file.name, open: () => open(file, i) })));
}

async function analyze(files: readonly File[]): Promise<News> {
  const name = nameOf(files);
  const total = files.reduce((sum, { size }) => sum + size, 0);
  if (total === 0) return { type: 'failure', text: `${name} is empty: it has no bytes.` };
  let read = 0;
  await using capture = opened(files, (bytes) => {
    read = bytes;
  });
  const onProgress = ({ rocePackets: packets }: { rocePackets: number }) =>
    tell({ type: 'progress', read, total, packets });
  const analysis = await analyzeRecords(capture, { onProgress }, { file: name });
  const { frames, damage } = analysis.summary;
  // Of a damaged file with frames there is a report, which states where the reading ended.
  if (frames === 0 && damage !== undefined)
    return { type: 'failure', text: `${name} is not a capture that can be read: ${damage}.` };
  return { type: 'report', data: toReportData(analysis, GENERATOR, DEFAULT_LIMITS) };
}

const nameOf = (files: readonly File[]): string =>
  files.length === 1 ? files[0].name : `${counted(files.length, 'file')}: ${files[0].name} …`;

function failureOf(error: unknown, files: readonly File[]): string {
  const { name, message } = error as Error;
  // A folder, a file that changed or went away since it was chosen, or one without permission.
  if (error instanceof DOMException)
    return `${nameOf(files)} could not be read by the browser (${name}). Is it a folder, or did it change since you chose it?`;
  return `The analysis of ${nameOf(files)} failed: ${message}`;
}
