/** The reader's selection: one connection, a window of time, a packet. */
import type { Finding } from '../../flow/analysis.ts';
import { type ReportConnection, type ReportData, singles } from '../data.ts';

/** Nanoseconds since the first frame. */
export interface TimeWindow {
  from: number;
  to: number;
}

interface PacketPlace {
  frame: number;
  /** Undefined: whichever comes first. */
  part: number | undefined;
}

export interface View {
  /** Its id; undefined where the capture has none. */
  connection: number | undefined;
  /** Undefined: all of the connection's time. */
  window: TimeWindow | undefined;
  packet: PacketPlace | undefined;
}

export type Action =
  | { type: 'connection'; id: number }
  | { type: 'window'; window: TimeWindow | undefined }
  | { type: 'packet'; packet: PacketPlace | undefined }
  /** A finding's connection, time and first packet. */
  | { type: 'finding'; finding: Finding; frame: number | undefined };

/** The connection of the worst finding, else the first one. */
export function firstView({ findings, connections }: ReportData): View {
  const ids = new Set(connections.map(({ id }) => id));
  const worst = singles(findings).find(({ connection }) => connection !== undefined && ids.has(connection));
  return { connection: worst?.connection ?? connections[0]?.id, window: undefined, packet: undefined };
}

export function nextView(data: ReportData, view: View, action: Action): View {
  switch (action.type) {
    case 'connection':
      return action.id === view.connection
        ? view
        : { connection: action.id, window: undefined, packet: undefined };
    case 'window':
      return { ...view, window: action.window };
    case 'packet':
      return { ...view, packet: action.packet };
    case 'finding': {
      const { finding, frame } = action;
      const connection = data.connections.find(({ id }) => id === finding.connection);
      if (connection === undefined) return view;
      const first = frame ?? finding.frames[0];
      return {
        connection: connection.id,
        window: around(finding, connection),
        packet: first === undefined ? undefined : { frame: first, part: undefined },
      };
    }
  }
}

export const wholeOf = ({ start, end }: { start: number; end: number }): TimeWindow => ({
  from: start,
  to: Math.max(end, start + 1000),
});

/** A finding's time with the packets just before and after; undefined where that is nearly everything. */
function around({ start, end }: Finding, connection: ReportConnection): TimeWindow | undefined {
  const whole = wholeOf(connection);
  const margin = Math.max((end - start) * 0.08, (whole.to - whole.from) * 0.02);
  return clamped({ from: start - margin, to: end + margin }, whole);
}

/** A window moved and cut to lie within the whole; undefined where it is the whole. */
export function clamped(window: TimeWindow, whole: TimeWindow): TimeWindow | undefined {
  const span = window.to - window.from;
  if (span >= (whole.to - whole.from) * 0.995) return undefined;
  const from = Math.min(Math.max(window.from, whole.from), whole.to - span);
  return { from, to: from + span };
}

/** Below a microsecond there is nothing more to see. */
const MIN_SPAN = 1000;

/** The window with `factor` of its span about the same middle. */
export function zoomed(window: TimeWindow, factor: number, whole: TimeWindow): TimeWindow | undefined {
  const middle = (window.from + window.to) / 2;
  const half = Math.max(((window.to - window.from) * factor) / 2, MIN_SPAN / 2);
  return clamped({ from: middle - half, to: middle + half }, whole);
}

/** The window moved by a part of its span: 0.25 is a quarter towards the end. */
export function panned(window: TimeWindow, part: number, whole: TimeWindow): TimeWindow | undefined {
  const by = (window.to - window.from) * part;
  return clamped({ from: window.from + by, to: window.to + by }, whole);
}
