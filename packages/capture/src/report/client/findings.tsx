/** The findings, worst first, each with its hint and the way to its packets. */
import { useState } from 'preact/hooks';
import type { Finding, Severity } from '../../flow/analysis.ts';
import { formatCount, formatTime } from '../../units.ts';
import type { ReportData } from '../data.ts';
import type { Action } from './state.ts';

/** Distinguished by shape as well as by colour. */
const marks: Record<Severity, { shape: string; name: string }> = {
  error: { shape: 'M3 3h10v10h-10z', name: 'Error' },
  warning: { shape: 'M8 2l6.5 12h-13z', name: 'Warning' },
  note: { shape: 'M8 3a5 5 0 1 0 0.01 0z', name: 'Note' },
};

/** Of the frames behind a finding, at first. */
const FRAMES_SHOWN = 10;
const FINDINGS_SHOWN = 20;

export function Findings({ data, show }: { data: ReportData; show: (action: Action) => void }) {
  const [all, setAll] = useState(false);
  const { findings } = data;
  const shown = all ? findings : findings.slice(0, FINDINGS_SHOWN);
  return (
    <section id="findings" aria-labelledby="findings-title">
      <h2 id="findings-title">
        Findings <span class="count">{formatCount(findings.length)}</span>
      </h2>
      {findings.length === 0 ? (
        <p class="empty">Nothing stood out in this capture.</p>
      ) : (
        <ol class="findings">
          {shown.map((finding) => (
            <Item
              key={`${finding.kind} ${finding.connection} ${finding.start} ${finding.text}`}
              {...{ finding, data, show }}
            />
          ))}
        </ol>
      )}
      {shown.length < findings.length && (
        <button type="button" class="more" onClick={() => setAll(true)}>
          Show all {formatCount(findings.length)} findings
        </button>
      )}
    </section>
  );
}

interface ItemProps {
  finding: Finding;
  data: ReportData;
  show: (action: Action) => void;
}

function Item({ finding, data, show }: ItemProps) {
  const { severity, text, hint, start, end, connection } = finding;
  const mark = marks[severity];
  const isThere = data.connections.some(({ id }) => id === connection);
  return (
    <li class={`finding ${severity}`}>
      <p class="severity">
        <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
          <path d={mark.shape} />
        </svg>
        {mark.name}
      </p>
      <div>
        <p class="sentence">{text}</p>
        <p class="hint">{hint}</p>
        <div class="place">
          <span class="faint">
            {formatTime(start)}
            {end > start && ` … ${formatTime(end)}`}
          </span>
          {isThere && (
            <button type="button" onClick={() => show({ type: 'finding', finding, frame: undefined })}>
              Show in connection {connection}
            </button>
          )}
          {finding.frames.length > 0 && <Frames {...{ finding, isThere, show }} />}
        </div>
      </div>
    </li>
  );
}

function Frames({ finding, isThere, show }: Omit<ItemProps, 'data'> & { isThere: boolean }) {
  const [all, setAll] = useState(false);
  const { frames, frameCount } = finding;
  const shown = all ? frames : frames.slice(0, FRAMES_SHOWN);
  const rest = frameCount - shown.length;
  return (
    <p class="frames">
      <span class="faint">Frames</span>
      {shown.map((frame) =>
        isThere ? (
          <button key={frame} type="button" onClick={() => show({ type: 'finding', finding, frame })}>
            {frame}
          </button>
        ) : (
          <span key={frame}>{frame}</span>
        ),
      )}
      {rest > 0 &&
        (shown.length < frames.length ? (
          <button type="button" aria-label={`${formatCount(rest)} more frames`} onClick={() => setAll(true)}>
            {formatCount(rest)} more
          </button>
        ) : (
          <span class="faint">and {formatCount(rest)} more</span>
        ))}
    </p>
  );
}
