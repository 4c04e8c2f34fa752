/** The points of the PSN plot, and the recoveries, lost packets and stalls that are drawn with them. */
import { psnDiff } from '@node-roce/wire';
import type { PlotPoint, Recovery, RetransmitCause, Stall } from '../../flow/analysis.ts';
import { causeText, findLosses, lossText } from '../../ladder/evidence.ts';
import { fromColumns, type ReportConnection } from '../data.ts';
import type { ThemeColor } from '../themes.ts';
import type { Shape } from './shapes.ts';

export type PsnKind = Exclude<PlotPoint['kind'], 'retransmission'> | `again-${RetransmitCause}` | 'lost';

export interface PsnPoint {
  time: number;
  /** Unwrapped: it goes on past 2^24. */
  psn: number;
  kind: PsnKind;
  frame: number;
  /** More about it. */
  note: string | undefined;
}

/** From the evidence of a recovery to its first packet. */
export interface PsnJoin {
  fromTime: number;
  fromPsn: number;
  time: number;
  psn: number;
  isSilence: boolean;
  /** `≈ timeout 14`. */
  text: string;
}

/** All that is drawn of the requests of one end. */
export interface PsnContent {
  requester: 'a' | 'b';
  points: PsnPoint[];
  joins: PsnJoin[];
  stalls: Stall[];
}

interface Look {
  name: string;
  color: ThemeColor;
  shape: Shape;
}

/** In the order in which they are drawn: what matters lies on top. Each shape is there once: paper has no colours. */
export const looks: Readonly<Record<PsnKind, Look>> = {
  ack: { name: 'ACK', color: 'ack', shape: 'step' },
  request: { name: 'Request', color: 'request', shape: 'dot' },
  response: { name: 'Response', color: 'response', shape: 'ring' },
  marked: { name: 'ECN CE', color: 'cnp', shape: 'plus' },
  cnp: { name: 'CNP', color: 'cnp', shape: 'triangle' },
  'again-timeout': { name: 'Retransmission: ACK timeout', color: 'retransmission', shape: 'diamond' },
  'again-sequence-nak': { name: 'Retransmission: sequence NAK', color: 'retransmission', shape: 'square' },
  'again-implied-nak': { name: 'Retransmission: implied NAK', color: 'retransmission', shape: 'up' },
  'again-rnr': { name: 'Retransmission: RNR NAK', color: 'retransmission', shape: 'down' },
  'again-probe': { name: 'Retransmission: probe', color: 'retransmission', shape: 'bar' },
  'again-unknown': { name: 'Retransmission: cause not shown', color: 'retransmission', shape: 'star' },
  rnr: { name: 'RNR NAK', color: 'rnr', shape: 'filled-down' },
  nak: { name: 'NAK', color: 'nak', shape: 'cross' },
  lost: { name: 'Lost or late', color: 'nak', shape: 'crossed-ring' },
};
export const PSN_KINDS = Object.keys(looks) as PsnKind[];

const PSN_COUNT = 2 ** 24;
export const psn24 = (psn: number): number => ((psn % PSN_COUNT) + PSN_COUNT) % PSN_COUNT;

/** Returns the drawing of each end's requests; ends without any are left out. */
export function psnContents(connection: ReportConnection): PsnContent[] {
  const all = fromColumns(connection.plot).sort((p, q) => p.time - q.time || p.frame - q.frame);
  return (['a', 'b'] as const).flatMap((requester) => {
    const points = placed(all.filter((point) => point.requester === requester));
    if (points.length === 0) return [];
    const recoveries = connection.recoveries
      .filter(({ from }) => from === requester)
      .sort((x, y) => x.frame - y.frame);
    const noteOf = notesOf(recoveries);
    const shown = points.map((point): PsnPoint => {
      const { kind, time, psn, frame, cause = 'unknown' } = point;
      if (kind !== 'retransmission') return { time, psn, frame, kind, note: undefined };
      return { time, psn, frame, kind: `again-${cause}`, note: noteOf(frame) };
    });
    return {
      requester,
      points: [...shown, ...lostPoints(points, recoveries)].sort((p, q) => p.time - q.time),
      joins: joinsOf(points, recoveries),
      stalls: connection.stalls.filter(({ from }) => from === requester),
    };
  });
}

/** CNPs, which have no PSN of their own, where the packets were. Whole turns of PSNs are taken off. */
function placed(points: PlotPoint[]): PlotPoint[] {
  let last = points.find(({ kind }) => kind !== 'cnp')?.psn;
  for (const point of points) {
    if (point.kind === 'cnp') point.psn = last ?? point.psn;
    else last = point.psn;
  }
  const least = points.reduce((low, { psn }) => Math.min(low, psn), Number.POSITIVE_INFINITY);
  for (const point of points) point.psn -= Math.floor(least / PSN_COUNT) * PSN_COUNT;
  return points;
}

/** The cause in words by the frame of a retransmission, where its recovery is listed. */
function notesOf(recoveries: readonly Recovery[]): (frame: number) => string | undefined {
  return (frame) => {
    const recovery = recoveries.findLast((each) => each.frame <= frame);
    return recovery !== undefined && frame <= recovery.lastFrame ? causeText(recovery) : undefined;
  };
}

function lostPoints(points: readonly PlotPoint[], recoveries: readonly Recovery[]): PsnPoint[] {
  const seen = points.flatMap((point) => {
    const isResponse = point.kind === 'response';
    const isRequest = point.kind === 'request' || point.kind === 'retransmission' || point.kind === 'marked';
    if (!isResponse && !isRequest) return [];
    return { frame: point.frame, psn: psn24(point.psn), requester: point.requester, isRequest, point };
  });
  seen.sort((x, y) => x.frame - y.frame);
  return findLosses(seen, recoveries).flatMap(({ recovery, ...loss }) => {
    const near = (loss.seen ?? loss.behind)?.point;
    if (near === undefined) return [];
    return {
      time: near.time,
      psn: near.psn + psnDiff(recovery.psn, psn24(near.psn)),
      kind: 'lost' as const,
      frame: loss.seen === undefined ? recovery.frame : near.frame,
      note: `${recovery.missing === 'response' ? 'the response' : 'the request'}: ${lossText(recovery)}`,
    };
  });
}

function joinsOf(points: readonly PlotPoint[], recoveries: readonly Recovery[]): PsnJoin[] {
  const byFrame = new Map(points.map((point) => [point.frame, point]));
  return recoveries.flatMap((recovery) => {
    const { frame, time, wait, evidence, cause, timeout } = recovery;
    const first = byFrame.get(frame);
    if (first === undefined || wait <= 0) return [];
    const isSilence = cause === 'timeout' || cause === 'probe';
    const shown = isSilence || evidence === undefined ? undefined : byFrame.get(evidence);
    return {
      fromTime: shown?.time ?? time - wait,
      fromPsn: shown?.psn ?? first.psn,
      time,
      psn: first.psn,
      isSilence,
      text: timeout === undefined ? '' : `≈ timeout ${timeout}`,
    };
  });
}
