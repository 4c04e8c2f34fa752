/** The findings, worst first, each with its hint and the way to its packets. */
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Finding, Severity } from '../../flow/analysis.ts';
import { counted, formatCount, formatTime } from '../../units.ts';
import type { ReportData } from '../data.ts';
import type { Action } from './state.ts';
import { onPrint } from './theme.ts';

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
  const open = findings.filter(({ isExplained }) => isExplained !== true);
  const explained = findings.filter(({ isExplained }) => isExplained === true);
  const shown = all ? open : open.slice(0, FINDINGS_SHOWN);
  return (
    <section id="findings" aria-labelledby="findings-title">
      <h2 id="findings-title">
        Findings <span class="count">{formatCount(findings.length)}</span>
      </h2>
      {findings.length === 0 ? (
        <p class="empty">Nothing stood out in this capture.</p>
      ) : (
        <List {...{ findings: shown, data, show }} />
      )}
      {shown.length < open.length && (
        <button type="button" class="more" onClick={() => setAll(true)}>
          Show all {formatCount(open.length)} findings
        </button>
      )}
      {explained.length > 0 && (
        <Folded title={`${counted(explained.length, 'finding')} that the verdict explains`}>
          <List {...{ findings: explained, data, show }} />
        </Folded>
      )}
    </section>
  );
}

/** Folded away on the screen, and open on paper. */
function Folded({ title, children }: { title: string; children: ComponentChildren }) {
  const details = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    let wasOpen = false;
    return onPrint((isPrinting) => {
      const element = details.current!;
      if (isPrinting) wasOpen = element.open;
      element.open = isPrinting || wasOpen;
    });
  }, []);
  return (
    <details ref={details} class="explained">
      <summary>{title}</summary>
      {children}
    </details>
  );
}

function List({ findings, data, show }: Omit<ItemProps, 'finding'> & { findings: readonly Finding[] }) {
  if (findings.length === 0) return null;
  return (
    <ol class="findings">
      {findings.map((finding) => (
        <Item
          key={`${finding.kind} ${finding.connection} ${finding.start} ${finding.text}`}
          {...{ finding, data, show }}
        />
      ))}
    </ol>
  );
}

interface ItemProps {
  finding: Finding;
  data: ReportData;
  show: (action: Action) => void;
}

function Item({ finding, data, show }: ItemProps) {
  const { severity, text, hint, start, end, members } = finding;
  const mark = marks[severity];
  // The frames of a group are those of its worst.
  const single = members?.[0] ?? finding;
  const isThere = data.connections.some(({ id }) => id === single.connection);
  return (
    <li class={`finding ${severity}`}>
      <p class="severity">
        <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
          <path d={mark.shape} />
        </svg>
        {mark.name}
      </p>
      <div>
        <Sentence text={text} subject={finding.subject} />
        <p class="hint">{hint}</p>
        <div class="place">
          <span class="faint">
            {formatTime(start)}
            {end > start && ` … ${formatTime(end)}`}
          </span>
          {isThere && <ShowButton finding={single} show={show} />}
          {finding.frames.length > 0 && <Frames {...{ finding: single, isThere, show }} />}
        </div>
        {members !== undefined && <Members {...{ members, data, show }} />}
      </div>
    </li>
  );
}

/** A finding's text; the clause that names the finding is bold. */
function Sentence({ text, subject }: { text: string; subject: string | undefined }) {
  const prefix = subject !== undefined && text.startsWith(`${subject}: `) ? subject.length + 2 : 0;
  const end = /: |; |, the (?:first|worst)/.exec(text.slice(prefix))?.index ?? text.length;
  return (
    <p class="sentence">
      {text.slice(0, prefix)}
      <b>{text.slice(prefix, prefix + end)}</b>
      {text.slice(prefix + end)}
    </p>
  );
}

function ShowButton({ finding, show }: Pick<ItemProps, 'finding' | 'show'>) {
  return (
    <button type="button" class="go" onClick={() => show({ type: 'finding', finding, frame: undefined })}>
      Show in connection {finding.connection}
    </button>
  );
}

/** The findings of a group one by one, worst first. */
function Members({
  members,
  data,
  show,
}: Pick<ItemProps, 'data' | 'show'> & { members: readonly Finding[] }) {
  const there = new Set(data.connections.map(({ id }) => id));
  return (
    <details class="members">
      <summary>All {formatCount(members.length)}, worst first</summary>
      <ol>
        {members.map((member) => (
          <li key={`${member.connection} ${member.from} ${member.start}`}>
            {member.text}{' '}
            {member.connection !== undefined && there.has(member.connection) && (
              <ShowButton finding={member} show={show} />
            )}
          </li>
        ))}
      </ol>
    </details>
  );
}

function Frames({ finding, isThere, show }: Omit<ItemProps, 'data'> & { isThere: boolean }) {
  const [all, setAll] = useState(false);
  const { frames, frameCount } = finding;
  const shown = all ? frames : frames.slice(0, FRAMES_SHOWN);
  const rest = frameCount - shown.length;
  return (
    <p class="frames">
      <span class="faint">{frames.length === 1 ? 'Frame' : 'Frames'}</span>
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
