/** The comparison of two captures as the body of a page: tables in the look of the report, and no script. */
import type { Comparison, Transit, TransitEvent, TransitFate } from '../compare/comparison.ts';
import type { CaptureSummary } from '../flow/analysis.ts';
import {
  counted,
  formatCount,
  formatDuration,
  formatPsn,
  formatQp,
  formatSeconds,
  formatShare,
} from '../units.ts';
import { escapeMarkup } from './escape.ts';

interface Column<Row> {
  heading: string;
  value: (row: Row) => string;
  isNumber?: boolean;
}

/** Fates of packets in words. */
const FATES: Readonly<Record<TransitFate, string>> = {
  lost: 'sent, and not seen at the other capture point',
  damaged: 'the ICRC is right near the sender and wrong at the other capture point',
  duplicated: 'seen once near the sender, and again at the other capture point',
  unseen:
    'only at the capture point far from its sender: the near capture missed it, or it took another path',
};

const wayOf = ({ from }: Transit): string => (from === 'a' ? 'A → B' : 'B → A');

const number = <Row>(heading: string, value: (row: Row) => number): Column<Row> => ({
  heading,
  value: (row) => formatCount(value(row)),
  isNumber: true,
});

const duration = <Row>(heading: string, value: (row: Row) => number | undefined): Column<Row> => ({
  heading,
  value: (row) => {
    const time = value(row);
    return time === undefined ? '–' : formatDuration(time);
  },
  isNumber: true,
});

const TRANSITS: readonly Column<Transit>[] = [
  { heading: 'Direction', value: wayOf },
  number('Sent', ({ sent }) => sent),
  number('Arrived', ({ arrived }) => arrived),
  number('Lost', ({ lost }) => lost),
  number('Damaged', ({ damaged }) => damaged),
  number('Duplicated', ({ duplicated }) => duplicated),
  number('Reordered', ({ reordered }) => reordered),
  number('Unseen', ({ unseen }) => unseen),
];

const DELAYS: readonly Column<Transit>[] = [
  { heading: 'Direction', value: wayOf },
  duration('Least', ({ delay }) => delay?.min),
  duration('Half below', ({ delay }) => delay?.p50),
  duration('90 % below', ({ delay }) => delay?.p90),
  duration('99 % below', ({ delay }) => delay?.p99),
  duration('Most', ({ delay }) => delay?.max),
];

const EVENTS: readonly Column<TransitEvent>[] = [
  { heading: 'Time, s', value: ({ time }) => formatSeconds(time), isNumber: true },
  { heading: 'Frame A', value: ({ frameA }) => String(frameA ?? '–'), isNumber: true },
  { heading: 'Frame B', value: ({ frameB }) => String(frameB ?? '–'), isNumber: true },
  { heading: 'Fate', value: ({ fate }) => fate },
  { heading: 'From', value: ({ source }) => source },
  { heading: 'To', value: ({ destination, destQp }) => `${destination} ${formatQp(destQp)}` },
  { heading: 'Packet', value: ({ opcode }) => opcode },
  { heading: 'PSN', value: ({ psn }) => formatPsn(psn), isNumber: true },
];

/** The comparison in one sentence. */
export function comparisonText({ aToB, bToA }: Comparison): string {
  const parts = [aToB, bToA].map((transit) => {
    const { sent, lost } = transit;
    return sent === 0 ? `${wayOf(transit)}: no packets` : `${wayOf(transit)}: ${lossOf(lost, sent)}`;
  });
  return `${parts.join('; ')}.`;
}

const lossOf = (lost: number, sent: number): string =>
  lost === 0
    ? `none of ${counted(sent, 'packet')} lost`
    : `${formatCount(lost)} of ${counted(sent, 'packet')} lost (${formatShare(lost, sent)})`;

export function comparisonBody(comparison: Comparison): string {
  const { summaryA, summaryB, aToB, bToA, outside, unplaced, events, eventCount } = comparison;
  const transits = [aToB, bToA];
  const notes = [
    outside.a + outside.b > 0 &&
      `${counted(outside.a, 'packet')} of A and ${formatCount(outside.b)} of B lie at times that the other capture does not cover.`,
    unplaced > 0 && `${counted(unplaced, 'packet')} come from senders that only one capture shows.`,
    ...[summaryA, summaryB].map(
      ({ damage }, i) => damage !== undefined && `Capture ${'AB'[i]} was read to its damage only: ${damage}.`,
    ),
  ].filter((note) => typeof note === 'string');
  const fates = (Object.keys(FATES) as TransitFate[]).filter((fate) =>
    events.some((event) => event.fate === fate),
  );
  return `<header><div class="masthead"><div>
<p class="kicker">Comparison of two RoCE captures</p>
<h1>${escapeMarkup(nameOf(summaryA, 'A'))} and ${escapeMarkup(nameOf(summaryB, 'B'))}</h1>
<p class="faint">A: ${sizeOf(summaryA)} · B: ${sizeOf(summaryB)}</p>
</div></div></header>
<main>
<section id="verdict"><h2>${escapeMarkup(comparisonText(comparison))}</h2>
<p>${escapeMarkup(clockText(comparison))}</p>
${notes.map((note) => `<p class="faint">${escapeMarkup(note)}</p>\n`).join('')}</section>
<section id="packets"><h2>Packets between the capture points</h2>
${table('Packets by direction', TRANSITS, transits)}</section>
<section id="delay"><h2>Time from one capture point to the other</h2>
${table('Delay by direction', DELAYS, transits)}</section>
<section id="events"><h2>Packets that did not simply pass</h2>
${eventCount === 0 ? '<p class="empty">Every packet of one capture is in the other.</p>' : table('Packets', EVENTS, events)}
${fates.map((fate) => `<p class="faint"><b>${fate}</b>: ${FATES[fate]}</p>\n`).join('')}${
  eventCount > events.length
    ? `<p class="faint">${formatCount(eventCount - events.length)} more are not listed.</p>`
    : ''
}</section>
</main>
`;
}

const nameOf = ({ file }: CaptureSummary, otherwise: string): string =>
  file?.replace(/^.*\//, '') ?? otherwise;

const sizeOf = ({ rocePackets, duration: time, startTime }: CaptureSummary): string =>
  escapeMarkup(
    [
      counted(rocePackets, 'RoCE packet'),
      formatDuration(time),
      startTime?.replace('T', ' ').replace('Z', ' UTC'),
    ]
      .filter(Boolean)
      .join(', '),
  );

/** How the clocks of the two captures differ. */
export function clockText({
  clock: { offset, drift, uncertainty, samples },
}: Pick<Comparison, 'clock'>): string {
  const size = formatDuration(Math.abs(offset));
  const ahead = offset === 0 ? 'agrees with A' : `is ${size} ${offset > 0 ? 'ahead of' : 'behind'} A`;
  const gain = drift === 0 ? '' : `, and gains ${formatDuration(drift)} a second`;
  const bound =
    uncertainty === undefined
      ? 'packets of one direction only are in both captures: their least delay counts as 0'
      : `± ${formatDuration(uncertainty)}, and exact if the least delay is the same both ways`;
  return `Clock B ${ahead}${gain} (${counted(samples, 'packet')}; ${bound})`;
}

/** A table that scrolls, by keys too, where the window is narrow. */
function table<Row>(label: string, columns: readonly Column<Row>[], rows: readonly Row[]): string {
  const classOf = ({ isNumber }: Column<Row>) => (isNumber === true ? ' class="number"' : '');
  const head = columns.map(
    (column) => `<th scope="col"${classOf(column)}>${escapeMarkup(column.heading)}</th>`,
  );
  const lines = rows.map((row) => {
    const cells = columns.map((column) => `<td${classOf(column)}>${escapeMarkup(column.value(row))}</td>`);
    return `<tr class="still">${cells.join('')}</tr>\n`;
  });
  return `<div class="scroll" role="region" tabindex="0" aria-label="${escapeMarkup(label)}"><table>
<thead><tr>${head.join('')}</tr></thead>
<tbody>
${lines.join('')}</tbody></table></div>
`;
}
