/** The table that `roce capture` shows while it runs, its lines where there is no terminal, and their JSON. */
import type { Addresses } from '@node-roce/capture';
import type { Terminal } from '../terminal.ts';
import { type Flow, type FlowCounts, type FlowTable, nameOfFlow } from './flow-counts.ts';

/** The state of the capture, without the flows. */
export interface LiveState {
  /** Since the start. */
  seconds: number;
  dropped: number;
  /** PFC and PAUSE frames. */
  pauseFrames?: number;
}

interface Sample {
  seconds: number;
  packets: number;
  bytes: number;
}

/** Packets and bits a second between two looks. */
interface Rate {
  packetsPerSecond: number;
  bitsPerSecond: number;
}

/** Lines around the rows of flows: totals, headings, how many are not shown, the cursor's. */
const OTHER_LINES = 5;

/** A narrow terminal cuts off the last ones. */
const COLUMNS: readonly (readonly [heading: string, cell: (counts: FlowCounts, rate: Rate) => string])[] = [
  ['packets/s', (_, { packetsPerSecond }) => packetsPerSecond.toFixed(0)],
  ['Gb/s', (_, { bitsPerSecond }) => (bitsPerSecond / 1e9).toFixed(3)],
  ['retx', ({ sentAgain }) => `${sentAgain}`],
  ['NAKs', ({ naks }) => `${naks}`],
  ['RNR', ({ rnrNaks }) => `${rnrNaks}`],
  ['bad', ({ icrcBad }) => `${icrcBad}`],
  ['CE', ({ ecnMarked }) => `${ecnMarked}`],
  ['CNPs', ({ cnps }) => `${cnps}`],
  ['packets', ({ packets }) => `${packets}`],
];
/** Headings whose counts mean trouble if not 0. */
const ALERT_COLUMNS: ReadonlySet<string> = new Set(['retx', 'NAKs', 'RNR', 'bad']);

/** The live table of `roce capture`, or a line a second where there is no terminal. */
export class LiveView {
  readonly #table: FlowTable;
  readonly #addresses: Addresses;
  readonly #terminal: Terminal;
  readonly #json: boolean;
  #last = new Map<FlowCounts, Sample>();

  constructor(table: FlowTable, addresses: Addresses, terminal: Terminal, json: boolean) {
    this.#table = table;
    this.#addresses = addresses;
    this.#terminal = terminal;
    this.#json = json;
  }

  /** Shows the packets since the last call; on a terminal it replaces the earlier output. */
  show(state: LiveState): void {
    const rates = this.#rates(state.seconds);
    const terminal = this.#terminal;
    if (this.#json) terminal.json({ type: 'interval', ...this.toJson(state, rates) });
    else if (terminal.isTTY) terminal.redraw(this.#lines(state, rates, terminal.rows - OTHER_LINES));
    else terminal.line(this.#sentence(state, rates));
    terminal.flush();
  }

  /** All flows, with their rates over the whole time. */
  end(state: LiveState): void {
    this.#last = new Map();
    this.#terminal.redraw(this.#lines(state, this.#rates(state.seconds), Number.POSITIVE_INFINITY));
  }

  /** Totals and flows, busiest first. */
  toJson(state: LiveState, rates = this.#rates(state.seconds)): Record<string, unknown> {
    const { total } = this.#table;
    return {
      seconds: state.seconds,
      dropped: state.dropped,
      pauseFrames: state.pauseFrames ?? 0,
      ...total,
      ...rates.get(total),
      flows: this.#busiest(rates).map((flow) => {
        const { source, destination, ...counts } = flow;
        return {
          source: this.#addresses.text(source),
          destination: this.#addresses.text(destination),
          ...counts,
          ...rates.get(flow),
        };
      }),
    };
  }

  #rates(seconds: number): Map<FlowCounts, Rate> {
    const rates = new Map<FlowCounts, Rate>();
    for (const counts of [this.#table.total, ...this.#table.flows]) {
      const { packets, bytes } = counts;
      const before = this.#last.get(counts) ?? { seconds: 0, packets: 0, bytes: 0 };
      const span = Math.max(seconds - before.seconds, 1e-3);
      rates.set(counts, {
        packetsPerSecond: (packets - before.packets) / span,
        bitsPerSecond: ((bytes - before.bytes) * 8) / span,
      });
      this.#last.set(counts, { seconds, packets, bytes });
    }
    return rates;
  }

  #busiest(rates: ReadonlyMap<FlowCounts, Rate>): Flow[] {
    const rateOf = (flow: Flow) => rates.get(flow)!.bitsPerSecond;
    return [...this.#table.flows].sort((a, b) => rateOf(b) - rateOf(a) || b.bytes - a.bytes);
  }

  #totals({ seconds, dropped, pauseFrames = 0 }: LiveState, rates: ReadonlyMap<FlowCounts, Rate>): string {
    const { total, flows } = this.#table;
    const { packetsPerSecond, bitsPerSecond } = rates.get(total)!;
    const many = `${total.packets} packets in ${flows.length} flow${flows.length === 1 ? '' : 's'}`;
    const pauses = pauseFrames > 0 ? `${pauseFrames} pause frames, ` : '';
    const gigabits = (bitsPerSecond / 1e9).toFixed(3);
    return `${seconds.toFixed(1)} s: ${packetsPerSecond.toFixed(0)} packets/s, ${gigabits} Gb/s; ${many}, ${pauses}${dropped} dropped`;
  }

  /** Totals and all counts in one line, for output that is not a terminal. */
  #sentence(state: LiveState, rates: ReadonlyMap<FlowCounts, Rate>): string {
    const { sentAgain, naks, rnrNaks, icrcBad, ecnMarked, cnps } = this.#table.total;
    return (
      `${this.#totals(state, rates)}, ${sentAgain} retransmitted, ${naks} NAKs, ${rnrNaks} RNR NAKs, ` +
      `${icrcBad} bad ICRCs, ${ecnMarked} CE, ${cnps} CNPs`
    );
  }

  #lines(state: LiveState, rates: ReadonlyMap<FlowCounts, Rate>, most: number): string[] {
    const { colors } = this.#terminal;
    const busiest = this.#busiest(rates);
    const shown = busiest.slice(0, Math.max(1, most));
    const rows = shown.map((flow) => ({
      name: `${nameOfFlow(flow, this.#addresses)} ${flow.transport} QP 0x${flow.destQp.toString(16).padStart(6, '0')}`,
      cells: COLUMNS.map(([, cell]) => cell(flow, rates.get(flow)!)),
    }));
    const width = Math.max(4, ...rows.map(({ name }) => name.length));
    const widths = COLUMNS.map(([heading], i) =>
      Math.max(heading.length, ...rows.map(({ cells }) => cells[i].length)),
    );
    const cut = (text: string) => (this.#terminal.isTTY ? text.slice(0, this.#terminal.columns - 1) : text);
    const lineOf = (name: string, cells: readonly string[]) =>
      cut([name.padEnd(width), ...cells.map((cell, i) => cell.padStart(widths[i]))].join('  '));
    const isBad = ({ cells }: (typeof rows)[number]) =>
      COLUMNS.some(([heading], i) => ALERT_COLUMNS.has(heading) && cells[i] !== '0');
    const hidden = busiest.length - shown.length;
    return [
      cut(this.#totals(state, rates)),
      colors.dim(
        lineOf(
          'flow',
          COLUMNS.map(([heading]) => heading),
        ),
      ),
      ...rows.map((row) => {
        const line = lineOf(row.name, row.cells);
        return isBad(row) ? colors.yellow(line) : line;
      }),
      ...(hidden > 0 ? [colors.dim(`and ${hidden} more`)] : []),
    ];
  }
}
