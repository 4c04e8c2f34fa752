/** Which capture this is, its figures at a glance, and the switch of themes. */
import { useState } from 'preact/hooks';
import { counted, formatBytes, formatCount, formatDuration, formatShare } from '../../units.ts';
import type { ReportData } from '../data.ts';
import { chooseTheme, savedTheme, type Theme } from './theme.ts';

const themes: readonly Theme[] = ['auto', 'light', 'dark'];

export function Header({ data }: { data: ReportData }) {
  const { summary } = data;
  const name = summary.file?.replace(/^.*\//, '') ?? 'Capture';
  const facts = [
    summary.format,
    summary.linkTypes.join(', '),
    summary.startTime?.replace('T', ' ').replace('Z', ' UTC'),
  ];
  return (
    <header>
      <div class="masthead">
        <div>
          <p class="kicker">RoCE capture report</p>
          <h1>{name}</h1>
          <p class="faint">{facts.filter(Boolean).join(' · ')}</p>
        </div>
        <ThemeSwitch />
      </div>
      <Figures data={data} />
      <Troubles data={data} />
    </header>
  );
}

function ThemeSwitch() {
  const [theme, setTheme] = useState<Theme>(savedTheme);
  const choose = (chosen: Theme) => {
    setTheme(chosen);
    chooseTheme(chosen);
  };
  return (
    <fieldset class="segments theme">
      <legend class="hidden">Colours</legend>
      {themes.map((each) => (
        <label key={each}>
          <input
            type="radio"
            name="theme"
            value={each}
            checked={each === theme}
            onChange={() => choose(each)}
          />
          <span>{each[0].toUpperCase() + each.slice(1)}</span>
        </label>
      ))}
    </fieldset>
  );
}

function Figures({ data: { summary, overview } }: { data: ReportData }) {
  const packets = summary.rocePackets;
  const again = overview.retransmitted;
  const { ok, bad, none } = summary.icrc;
  const checked = ok + bad;
  const figures: [name: string, value: string, detail: string, bad?: boolean][] = [
    ['Duration', formatDuration(summary.duration), counted(summary.frames, 'frame')],
    ['RoCE packets', formatCount(packets), `${formatBytes(overview.bytes)} of payload`],
    ['Connections', formatCount(overview.connections), counted(overview.messages, 'message')],
    [
      'Retransmitted',
      formatCount(again),
      again === 0 ? 'no packets' : `${formatShare(again, packets)} of the packets`,
      again > 0,
    ],
    [
      'Bad ICRC',
      checked === 0 ? '–' : formatCount(bad),
      checked === 0
        ? 'not checked'
        : `${formatCount(checked)} checked${none > 0 ? `, ${formatCount(none)} not` : ''}`,
      bad > 0,
    ],
  ];
  return (
    <dl class="figures">
      {figures.map(([term, value, detail, isBad]) => (
        <div key={term}>
          <dt>{term}</dt>
          <dd class={isBad ? 'marked' : ''}>{value}</dd>
          <dd class="faint">{detail}</dd>
        </div>
      ))}
    </dl>
  );
}

/** The defects of the capture itself. */
function Troubles({ data: { summary, unconnected } }: { data: ReportData }) {
  const damaged = Object.entries(summary.damaged).map(([reason, count]) => `${formatCount(count)} ${reason}`);
  const troubles = [
    summary.damage !== undefined &&
      `Reading stopped before the end of the file: ${summary.damage}. Only the frames before that point were analysed.`,
    (summary.droppedByCapture ?? 0) > 0 &&
      `The capturing system dropped ${counted(summary.droppedByCapture!, 'frame')}.`,
    damaged.length > 0 && `RoCE packets that could not be parsed: ${damaged.join(', ')}.`,
    summary.cutFrames > 0 &&
      `${counted(summary.cutFrames, 'frame')} cut by the snap length; their ICRC is unknown.`,
    summary.superPackets > 0 &&
      `${counted(summary.superPackets, 'super-packet')} split into the packets within.`,
    summary.otherFrames > 0 && `${counted(summary.otherFrames, 'frame')} of other protocols left out.`,
    unconnected > 0 &&
      `${counted(unconnected, 'RoCE packet')} outside of connections (messages of the connection manager, or damaged headers).`,
    summary.otherPorts.length > 0 &&
      `RoCE was found at other UDP ports too: ${summary.otherPorts.join(', ')}.`,
  ].filter((text) => text !== false);
  if (troubles.length === 0) return null;
  return (
    <ul class="troubles faint">
      {troubles.map((text) => (
        <li key={text}>{text}</li>
      ))}
    </ul>
  );
}
