/** The verdict of the capture with the chain that proves it, and those of the connections. */
import type { Certainty, Verdict } from '../../flow/analysis.ts';
import type { ReportData } from '../data.ts';
import type { Action } from './state.ts';

const CERTAINTY: Readonly<Record<Certainty, string>> = {
  certain: 'certain',
  likely: 'likely',
  'not-known': 'not known',
};
/** Connections with lines of their own; the table below has all. */
const MAX_LINES = 12;

export function VerdictSection({ data, show }: { data: ReportData; show: (action: Action) => void }) {
  const { verdict, connections } = data;
  const troubled = connections.filter((connection) => connection.verdict.severity !== undefined);
  return (
    <section id="verdict" aria-labelledby="verdict-title">
      <h2 id="verdict-title">Verdict</h2>
      <p class={`verdict ${verdict.severity ?? 'fine'}`}>
        <b>{verdict.text}</b> <span class="faint">({CERTAINTY[verdict.certainty]})</span>
      </p>
      <Chain verdict={verdict} />
      {verdict.hint !== undefined && <p class="hint">{verdict.hint}</p>}
      {verdict.also.length > 0 && (
        <ul class="also">
          {verdict.also.map(({ text, certainty }) => (
            <li key={text}>
              {text} <span class="faint">({CERTAINTY[certainty]})</span>
            </li>
          ))}
        </ul>
      )}
      {connections.length > 1 && troubled.length > 0 && (
        <ul class="lines">
          {troubled.slice(0, MAX_LINES).map(({ id, verdict: { text, certainty } }) => (
            <li key={id}>
              <button type="button" class="go" onClick={() => show({ type: 'connection', id })}>
                #{id}
              </button>{' '}
              {text} <span class="faint">({CERTAINTY[certainty]})</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** The events that prove a verdict, each with its frame. */
function Chain({ verdict: { chain } }: { verdict: Verdict }) {
  if (chain.length === 0) return null;
  return (
    <ol class="chain">
      {chain.map(({ frame, text }) => (
        <li key={`${frame} ${text}`}>
          {frame !== undefined && <span class="faint">Frame {frame}: </span>}
          {text}
        </li>
      ))}
    </ol>
  );
}
