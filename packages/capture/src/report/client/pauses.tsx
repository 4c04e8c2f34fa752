/** Ports that stopped their link partners: PFC and PAUSE frames by priority. */
import type { PausePriority, PauseSender } from '../../flow/record/pauses.ts';
import { counted, formatCount, formatDuration, formatTime } from '../../units.ts';
import type { ReportData } from '../data.ts';
import { type Column, Table } from './table.tsx';

const PAGE = 20;

type Row = PausePriority & { id: number; sender: PauseSender };

const columns: readonly Column<Row>[] = [
  {
    name: 'Port',
    cell: ({ sender }) => sender.mac,
    sort: ({ sender }) => sender.mac,
  },
  {
    name: 'Addresses behind it',
    cell: ({ sender }) => sender.addresses.join(', ') || 'none seen',
    sort: ({ sender }) => sender.addresses[0],
    isExtra: true,
  },
  {
    name: 'Priority',
    cell: ({ priority }) => (priority < 0 ? 'all (PAUSE)' : priority),
    sort: ({ priority }) => priority,
    isNumber: true,
  },
  { name: 'Pauses', cell: ({ pauses }) => formatCount(pauses), sort: ({ pauses }) => pauses, isNumber: true },
  {
    name: 'Resumes',
    title: 'Frames with 0 quanta: the priority may go on',
    cell: ({ resumes }) => formatCount(resumes),
    sort: ({ resumes }) => resumes,
    isNumber: true,
    isExtra: true,
  },
  {
    name: 'Quanta, most',
    title: 'Quanta of 512 bit times: the sum, and the most in one frame',
    cell: ({ quanta, mostQuanta }) => `${formatCount(quanta)}, ${formatCount(mostQuanta)}`,
    sort: ({ quanta }) => quanta,
    isNumber: true,
    isExtra: true,
  },
  {
    name: 'Stopped for',
    title: 'To the end of the quanta, or to the next frame',
    cell: ({ pausedTime }) =>
      pausedTime === undefined ? 'link speed not known' : formatDuration(pausedTime),
    sort: ({ pausedTime }) => pausedTime,
    isNumber: true,
  },
  {
    name: 'Seen',
    cell: ({ sender: { start, end } }) => `${formatTime(start)} … ${formatTime(end)}`,
    sort: ({ sender }) => sender.start,
    isNumber: true,
    isExtra: true,
  },
];

export function Pauses({ data: { pauses, summary } }: { data: ReportData }) {
  if (pauses.length === 0) return null;
  const rows = pauses.flatMap((sender) => sender.priorities.map((priority) => ({ ...priority, sender })));
  return (
    <section id="pauses" aria-labelledby="pauses-title">
      <div class="heading">
        <h2 id="pauses-title">
          Pause frames <span class="count">{counted(summary.pauseFrames, 'frame')}</span>
        </h2>
      </div>
      <Table
        label="Pause frames by port and priority"
        rows={rows.map((row, id) => ({ ...row, id }))}
        columns={columns}
        keyOf={({ id }) => id}
        pageSize={PAGE}
      />
    </section>
  );
}
