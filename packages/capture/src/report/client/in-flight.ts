/** The packets in flight of a connection over time, from the points of its PSN plot. */
import type { PlotPoint } from '../../flow/analysis.ts';
import { fromColumns, type ReportConnection } from '../data.ts';

/** PSNs that one end had sent and the other had not yet answered. */
export interface InFlight {
  requester: 'a' | 'b';
  /** Nanoseconds. */
  times: number[];
  packets: number[];
}

/** Answers that acknowledge all PSNs before theirs, but not theirs. */
const REFUSALS: ReadonlySet<PlotPoint['kind']> = new Set(['nak', 'rnr']);

/** Each end that sent requests and got answers. Where points are thinned out, a value can be off by the packets between two points. */
export function inFlightOf({ plot, transport }: ReportConnection): InFlight[] {
  if (transport !== 'RC' && transport !== 'XRC') return [];
  const points = fromColumns(plot).sort((x, y) => x.time - y.time);
  return (['a', 'b'] as const)
    .map((requester) => follow(requester, points))
    .filter((found) => found !== undefined);
}

function follow(requester: 'a' | 'b', points: readonly PlotPoint[]): InFlight | undefined {
  const times: number[] = [];
  const packets: number[] = [];
  let sent = Number.NEGATIVE_INFINITY;
  let answered = Number.NEGATIVE_INFINITY;
  let hasAnswers = false;
  for (const { requester: whose, kind, psn, time } of points) {
    if (whose !== requester || kind === 'cnp' || kind === 'marked') continue;
    if (kind === 'request' || kind === 'retransmission') {
      if (sent === Number.NEGATIVE_INFINITY) answered = Math.max(answered, psn - 1);
      sent = Math.max(sent, psn);
    } else {
      hasAnswers = true;
      answered = Math.max(answered, REFUSALS.has(kind) ? psn - 1 : psn);
    }
    if (sent === Number.NEGATIVE_INFINITY) continue;
    times.push(time);
    packets.push(Math.max(0, sent - answered));
  }
  return hasAnswers && times.length > 0 ? { requester, times, packets } : undefined;
}
