/** Findings of a capture as sentences, each with a hint; worst first. */
import type { Finding, Severity } from '../analysis.ts';
import { groupFindings } from './group.ts';
import { RULES } from './index.ts';
import type { Capture, Subject } from './rule.ts';

const RANK: Readonly<Record<Severity, number>> = { error: 0, warning: 1, note: 2 };

/**
 * @param subjects the directions of all connections
 * @param ofCauses the findings that causes are
 */
export function findingsOf(
  capture: Capture,
  subjects: readonly Subject[],
  ofCauses: readonly Finding[],
): Finding[] {
  const findings: Finding[] = [
    ...RULES.flatMap((rule) => rule.findInCapture?.(capture) ?? []),
    ...capture.exchanges.flatMap((exchange) =>
      RULES.flatMap((rule) => rule.findInExchange?.(exchange, capture) ?? []),
    ),
    ...ofCauses,
    ...subjects.flatMap((subject) => RULES.flatMap((rule) => rule.find?.(subject) ?? [])),
  ];
  findings.sort(
    (x, y) => RANK[x.severity] - RANK[y.severity] || y.frameCount - x.frameCount || x.start - y.start,
  );
  // Where the order of frames is not that of time, packets seem to be missing.
  const isOutOfOrder = capture.clock.stepsBack > 0;
  const shown = isOutOfOrder ? findings.filter(({ kind }) => kind !== 'capture-loss') : findings;
  return groupFindings(shown, capture.connections);
}
