/** The capture at a glance: sentences, why requesters went back, and next to which host packets were lost. */
import type { RetransmitCause, Severity } from '../../flow/analysis.ts';
import { overviewText } from '../../flow/overview.ts';
import { counted, formatCount, formatShare } from '../../units.ts';
import type { ReportData } from '../data.ts';

const CAUSES: readonly [cause: RetransmitCause, name: string][] = [
  ['sequence-nak', 'Sequence NAK'],
  ['implied-nak', 'Implied NAK (a response is missing)'],
  ['timeout', 'ACK timeout'],
  ['rnr', 'RNR NAK (no receive posted)'],
  ['probe', 'Probe of an idle sender'],
  ['unknown', 'Not shown by the capture'],
];
/** Hosts with bars of their own. */
const MAX_NEAR = 6;
const SEVERITIES: readonly [severity: Severity, one: string][] = [
  ['error', 'error'],
  ['warning', 'warning'],
  ['note', 'note'],
];

export function Summary({ data }: { data: ReportData }) {
  const { overview, findings } = data;
  const severities = SEVERITIES.map(([severity, one]) => {
    const count = findings.filter((finding) => finding.severity === severity).length;
    return count > 0 && counted(count, one);
  }).filter((text) => text !== false);
  const lines = overview.connections === 0 ? [] : overviewText(overview);
  return (
    <section id="summary" aria-labelledby="summary-title">
      <h2 id="summary-title">Summary</h2>
      <div class="summary">
        <ul class="sentences">
          {lines.map((line) => (
            <li key={line}>{line[0].toUpperCase() + line.slice(1)}</li>
          ))}
          <li>Findings: {severities.length === 0 ? 'none' : severities.join(', ')}</li>
        </ul>
        <div>
          {overview.goBacks > 0 && (
            <Bars
              title="Go-back-N events by cause"
              bars={CAUSES.map(([cause, name]) => [name, overview.causes[cause]])}
            />
          )}
          {overview.lostNear.length > 0 && (
            <Bars
              title="Where packets were lost, damaged or late"
              bars={[
                ...overview.lostNear
                  .slice(0, MAX_NEAR)
                  .map(({ host, packets }): [string, number] => [`Between ${host} and the tap`, packets]),
                ['Not known', overview.sides.unknown],
              ]}
            />
          )}
        </div>
      </div>
    </section>
  );
}

/** Counts as bars; those of 0 are left out. Drawn in SVG: browsers do not print backgrounds. */
function Bars({ title, bars }: { title: string; bars: readonly [name: string, count: number][] }) {
  const shown = bars.filter(([, count]) => count > 0);
  const total = shown.reduce((sum, [, count]) => sum + count, 0);
  const most = Math.max(...shown.map(([, count]) => count));
  return (
    <table class="bars">
      <caption>{title}</caption>
      <tbody>
        {shown.map(([name, count]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td class="number">{formatCount(count)}</td>
            <td class="number faint">{formatShare(count, total)}</td>
            <td class="bar">
              <svg
                viewBox="0 0 100 10"
                width="100%"
                height="10"
                preserveAspectRatio="none"
                aria-hidden="true"
              >
                <rect width={(100 * count) / most} height="10" />
              </svg>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
