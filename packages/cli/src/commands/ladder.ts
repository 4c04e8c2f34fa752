/** `roce ladder`: the packets of a connection as arrows between its ends, in an SVG. */
import {
  type Analysis,
  analyzeCapture,
  type Connection,
  counted,
  filterLadder,
  formatEndpoint,
  type LadderFilter,
  nothingDecoded,
  type PacketKind,
  readLadder,
  renderLadder,
} from '@node-roce/capture/node';
import { checkOutput, writeOutput } from '../drawing.ts';
import {
  exitCode,
  isFile,
  nameOfSources,
  pathsOf,
  type ReadingChoices,
  readingOptions,
  sourcesOf,
} from '../reading.ts';
import { checkSpan } from '../selection.ts';
import type { Terminal } from '../terminal.ts';

interface Options extends ReadingChoices {
  qp?: number;
  connection?: number;
  /** Nanoseconds. */
  from?: number;
  to?: number;
  kind?: PacketKind[];
  nak: boolean;
  text?: string;
  count: number;
  rowHeight: number;
  width: number;
  title?: string;
  output: string;
  json: boolean;
}

/** Connections that an error message lists. */
const LISTED = 10;

export async function run(files: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  for (const file of pathsOf(files)) checkOutput(file, options.output, options.json);
  checkSpan(options);
  const name = nameOfSources(files);
  const reading = await readingOptions(terminal, options);
  const analysis = await analyzeCapture(sourcesOf(files, terminal), reading);
  if (nothingDecoded(analysis.summary) !== undefined) return exitCode(analysis.summary, files, terminal);
  const connection = chosen(analysis, options, name);
  const { count: most, rowHeight, width, title } = options;
  const filter = filterOf(options);
  let packets = filterLadder(connection.ladder, filter);
  const { aToB, bToA } = connection;
  const all = aToB.packets + aToB.repeatedFrames + bToA.packets + bToA.repeatedFrames;
  if (connection.ladder.length < all) {
    if (files.every(isFile))
      packets = await readLadder(sourcesOf(files, terminal), connection, { ...reading, filter, most });
    // A stream can't be read again.
    else
      terminal.message(
        `${name}: of ${all} packets, only the first and those of findings are drawn; a file is drawn whole`,
      );
  }
  const shown = packets.slice(0, most);
  const svg = renderLadder(connection, { packets: shown, rowHeight, width, title });
  const said = `${counted(shown.length, 'packet')} of connection ${describe(connection)}`;
  const facts = { connection: connection.id, packets: shown.length, of: all };
  await writeOutput(svg, options, { facts, summary: said }, terminal);
  if (packets.length > most) {
    terminal.message(`only the first ${most} packets: choose with --from and --to, or raise --count`);
  }
  return exitCode(analysis.summary, files, terminal);
}

/** The connection that was asked for, or the only one. */
function chosen({ connections }: Analysis, { qp, connection: id }: Options, name: string): Connection {
  const fitting = connections.filter(
    (each) =>
      (id === undefined || each.id === id) && (qp === undefined || each.a.qpn === qp || each.b.qpn === qp),
  );
  if (fitting.length === 1) return fitting[0];
  const choice = fitting.length === 0 ? connections : fitting;
  const list = choice.slice(0, LISTED).map((each) => `\n  ${describe(each)}`);
  if (choice.length > LISTED) list.push('\n  …');
  const what =
    choice.length === 0
      ? 'no RoCE connection'
      : `${fitting.length === 0 ? 'no such connection' : `${fitting.length} connections`}; choose with --connection or --qp:`;
  throw Object.assign(new Error(`${name}: ${what}${list.join('')}`), { code: 'ERR_CONNECTION' });
}

const describe = ({ id, transport, a, b }: Connection): string =>
  `${id}: ${transport} ${formatEndpoint(a)} ↔ ${formatEndpoint(b)}`;

function filterOf({ from, to, kind, nak, text }: Options): LadderFilter {
  const kinds: readonly PacketKind[] | undefined = nak ? ['nak', 'rnr'] : kind;
  return { from, to, kinds: kinds && new Set(kinds), text };
}
