import { integer, listOf, nanoseconds, type OptionSpec, oneOf, ports, text, words } from '../options.ts';
import { address, anyQpn, exportChoices, filter, packetFilters } from './packet-choices.ts';
import { type CommandSpec, json } from './spec.ts';

/** Selects the parts of an analysis to show: the fields of `Selection`. */
const selection = (what: string, top: string): readonly OptionSpec[] => [
  {
    flags: '--connection <number>',
    summary: 'Select the connection by its number in roce flows',
    parse: integer(1, 2 ** 31),
  },
  address(what),
  {
    flags: '--from <seconds>',
    summary: `Ignore ${what} that ended before this time (seconds since the first frame)`,
    parse: nanoseconds,
  },
  { flags: '--to <seconds>', summary: `Ignore ${what} that began after this time`, parse: nanoseconds },
  { flags: '--top <number>', summary: top, parse: integer(1, 1_000_000) },
];

const icrcMode: OptionSpec = {
  flags: '--icrc <mode>',
  summary: 'check: verify every ICRC; skip: verify none, which is faster',
  parse: oneOf('check', 'skip'),
  fallback: 'check',
};

const port: OptionSpec = {
  flags: '--port <ports>',
  summary:
    'Also decode these UDP ports as RoCE (ports other than 4791 are found automatically if their ICRCs are right)',
  parse: ports,
};

const time: OptionSpec = {
  flags: '--time <form>',
  summary: 'relative: seconds since the first frame; absolute: local date and time; utc: the same in UTC',
  parse: oneOf('relative', 'absolute', 'utc'),
  fallback: 'relative',
};

/** Findings that a script asks about. */
const findingChoices: readonly OptionSpec[] = [
  {
    flags: '--kind <kinds>',
    summary: 'Select findings of these kinds, separated by commas (docs/capture-causes.md lists them)',
    parse: words,
  },
  {
    flags: '--fail-on <severity>',
    summary: 'Exit with 1 if a selected finding is at least this severe: error, warning, note',
    parse: oneOf('error', 'warning', 'note'),
  },
];

const output = (what: string): OptionSpec => ({
  flags: '-o, --output <file>',
  summary: `${what} to write; - for standard output`,
  parse: text,
  required: true,
});

/** How the commands that take several files treat them. */
const SEVERAL = 'Several files, or the captures in a directory, are read as one capture, in order of time.';

/** How every command treats a damaged file. */
const DAMAGED = 'If a file is damaged, its readable part is shown and the exit code is 1.';

export const captureCommands: readonly CommandSpec[] = [
  {
    usage: 'dump <files...>',
    summary: 'Print the RoCE packets of a capture, one per line, with the ICRC verdict',
    description:
      'Reads pcap and pcapng, also compressed with gzip or Zstandard; - reads standard input. Prints RoCE v2 and v1 packets and ' +
      'counts other frames. Super-packets captured on lo or veth are split into their packets, and packets inside ' +
      `ERSPAN or VXLAN mirrors are extracted. ${SEVERAL} ${DAMAGED}`,
    options: [
      time,
      { flags: '-x, --fields', summary: 'Print every field of every packet, with its bytes' },
      json('Print one JSON object per packet'),
      ...packetFilters,
      filter('packets'),
      port,
      { flags: '--retransmissions', summary: 'Select retransmitted packets, and print the cause' },
      {
        flags: '-c, --count <packets>',
        summary: 'Stop after this number of packets',
        parse: integer(1, Number.MAX_SAFE_INTEGER),
      },
    ],
    examples: [
      ['dump trace.pcap', 'One line per packet'],
      ['dump --json trace.pcapng.gz', 'One JSON object per packet'],
      ['dump -x -c 1 trace.pcap', 'The first packet, field by field'],
      ["dump --qp 0x11 --opcode 'RDMA Write' trace.pcap", 'WRITEs to one queue pair'],
      ['dump --nak trace.pcap', 'Refused requests'],
      ['dump --retransmissions trace.pcap', 'Retransmissions and their causes'],
      ['dump - < trace.pcap', 'Read standard input'],
    ],
    load: () => import('../commands/dump.ts'),
  },
  {
    usage: 'export <files...>',
    summary:
      'Copy a part of a capture, optionally without addresses and payload; or write its analysis as tables',
    description:
      'Writes the selected RoCE packets into a pcapng, each in a frame of its own: super-packets are split, and ' +
      'packets are extracted from mirrors. --anonymize replaces addresses: those that share a prefix still share one ' +
      "afterwards, and private ranges stay private; MAC addresses and the connection manager's messages are covered. " +
      'Checksums and ICRCs are computed anew; a wrong ICRC stays wrong. --parquet writes the whole analysis as tables, a ' +
      `folder per table, hour and host; captures can share a folder. An interrupted export leaves no file. ${SEVERAL}`,
    options: [...exportChoices, port, json('Print one JSON object about the written file')],
    examples: [
      ['export trace.pcap --from 1.2 --to 1.3 -o slice.pcapng', 'A tenth of a second'],
      ['export trace.pcap --comments -o commented.pcapng', 'Findings as frame.comment in Wireshark'],
      ['export trace.pcap --connection 3 -o third.pcapng', 'One connection'],
      ['export trace.pcap --anonymize --zero-payload -o public.pcapng', 'A file to publish'],
      [
        "export a.pcap --anonymize --key 'ours' -o a.pcapng",
        'The same addresses for every file with this key',
      ],
      ['export trace.pcap --qp 0x11 -o - | tshark -r -', 'Pipe to another program'],
      ['export trace.pcap --parquet tables --host node7', 'Tables for SQL'],
    ],
    load: () => import('../commands/export.ts'),
  },
  {
    usage: 'flows <files...>',
    summary: 'Explain a capture: the verdict, connections, causes of retransmissions, findings',
    description:
      'Prints the verdict first: the main cause of the trouble, and the packets that prove it. Then a row for each connection, ' +
      'with counts in both directions: a to b / b to a. The column paired shows how certain it is that the two directions belong ' +
      'together. Findings that no verdict covers follow, worst first, each with a hint and its first packets. ' +
      `${SEVERAL} ${DAMAGED}`,
    options: [
      ...selection('connections and findings', 'Select the connections with most packets, most first'),
      filter('connections'),
      ...findingChoices,
      time,
      icrcMode,
      port,
      json('Print one JSON object: connections with all counts and series, findings'),
      { flags: '--csv', summary: 'Print the findings as CSV' },
    ],
    examples: [
      ['flows trace.pcap', 'Verdict, connections and findings'],
      ["flows --json trace.pcap | jq '.connections[].ackRoundTrip'", 'JSON for programs'],
      ['flows ring/', 'All captures in a directory as one'],
      ['flows --icrc skip trace.pcapng.gz', 'Faster, if damaged packets do not matter'],
      ['flows --time utc trace.pcap', 'Findings with date and time, to look for in logs'],
      ['flows --fail-on warning trace.pcap', 'For CI: exit code 1 if there is a warning or an error'],
    ],
    load: () => import('../commands/flows.ts'),
  },
  {
    usage: 'messages <files...>',
    summary: 'List messages: operation, size, packets, latency, outcome',
    description:
      'Each SEND, RDMA WRITE, RDMA READ and atomic is assembled from its packets and printed when it ends; messages of one requester are ' +
      'in PSN order. Latency is from the first packet of a message to its completion: the ACK that covers it, or the last ' +
      `response. ${SEVERAL} ${DAMAGED}`,
    options: [
      {
        flags: '--qp <number>',
        summary: 'Select messages from or to this queue pair (0x… allowed)',
        parse: anyQpn,
      },
      { flags: '--operation <text>', summary: 'Select operations whose name contains this', parse: text },
      {
        flags: '--outcome <word>',
        summary: 'Select an outcome: completed, seen-whole, failed, incomplete',
        parse: oneOf('completed', 'seen-whole', 'failed', 'incomplete'),
      },
      { flags: '--retransmitted', summary: 'Select messages with retransmitted packets' },
      ...selection('messages', 'Select the messages with the longest latency, longest first'),
      time,
      icrcMode,
      port,
      json('Print one JSON object per message'),
      { flags: '--csv', summary: 'Print CSV with a heading' },
    ],
    examples: [
      ['messages trace.pcap', 'All messages'],
      ['messages --outcome failed trace.pcap', 'Failed messages and their errors'],
      ['messages --csv trace.pcap > messages.csv', 'For a spreadsheet'],
    ],
    load: () => import('../commands/messages.ts'),
  },
  {
    usage: 'report <files...>',
    summary: 'Write an HTML report of a capture: findings, connections, plots, ladders, packets',
    description:
      'Writes one HTML file that opens in any browser and loads nothing else: a summary and the findings first, then exchanges of the ' +
      'connection manager, pause frames, and each connection with its PSNs, throughput and latency over time, a ladder of ' +
      'its packets with all their fields, and its messages. If the ' +
      `capture is long, the page has a part of it, and lists what was left out. ${SEVERAL} ${DAMAGED}`,
    options: [
      output('HTML file'),
      { flags: '--title <text>', summary: 'Title of the page (default: the name of the file)', parse: text },
      ...selection('connections and findings', 'Select the connections with most packets, most first'),
      filter('connections'),
      icrcMode,
      port,
      json('Print one JSON object about the written file'),
    ],
    examples: [
      ['report trace.pcap -o report.html', 'Write the report'],
      ['report trace.pcap --connection 3 -o third.html', 'One connection and its findings'],
      ['report - -o report.html < trace.pcapng.gz', 'Read standard input'],
    ],
    load: () => import('../commands/report.ts'),
  },
  {
    usage: 'view',
    summary: 'Serve a page that analyzes captures in the browser',
    description:
      'Serves a page to this machine only, and prints its address. Drop captures on the page: the browser reads them, and shows the report of roce report. Nothing leaves the browser. ' +
      'With -o, the page is written into one file, which opens without a server and without node-roce.',
    options: [
      {
        flags: '--port <port>',
        summary: 'TCP port on 127.0.0.1 (default: any free port)',
        parse: integer(1, 65_535),
      },
      {
        flags: '-o, --output <file>',
        summary: 'Write the page here instead (- for standard output)',
        parse: text,
      },
    ],
    examples: [
      ['view', 'Open the address that it prints'],
      ['view -o captures.html', 'A file for a colleague who has no node-roce'],
    ],
    load: () => import('../commands/view.ts'),
  },
  {
    usage: 'query <sql> <files...>',
    summary: 'Ask captures in SQL: tables of packets, messages, connections and findings',
    description:
      'Runs a statement of DuckDB on the tables of roce export --parquet: packets, messages, connections and findings. The files are captures, ' +
      `or one folder of exported tables, which answer further questions faster. Needs the package @duckdb/node-api. ${SEVERAL}`,
    options: [icrcMode, port, json('Print one JSON object per row; 64-bit numbers are strings')],
    examples: [
      ['query "SELECT opcode, count(*) FROM packets GROUP BY opcode" trace.pcap', 'Packets by opcode'],
      ['query "SELECT * FROM findings" --json tables/', 'Exported tables, as JSON'],
    ],
    load: () => import('../commands/query.ts'),
  },
  {
    usage: 'compare <a> <b>',
    summary: 'Compare two captures of one path: packets lost between the capture points, and delays',
    description:
      'Compares two captures that were taken at the same time at two places, such as both ends. Estimates the offset of their ' +
      'clocks, then the delay from one place to the other in each direction, and lists packets that were lost, damaged or ' +
      'duplicated between the two places. Files are read twice, so standard input cannot be compared.',
    options: [
      port,
      {
        flags: '-c, --count <packets>',
        summary: 'List at most this number of packets',
        parse: integer(0, 5000),
        fallback: 100,
      },
      {
        flags: '--html <file>',
        summary:
          'Also write an HTML page with all of the listed packets; - for standard output, instead of the table',
        parse: text,
      },
      json('Print one JSON object'),
    ],
    examples: [
      ['compare sender.pcap receiver.pcap', 'Losses and delay from the sender to the receiver'],
      ['compare sender.pcap receiver.pcap --html page.html', 'The same as a page for a colleague'],
    ],
    load: () => import('../commands/compare.ts'),
  },
  {
    usage: 'ladder <files...>',
    summary: 'Draw the packets of a connection as a ladder, in SVG',
    description:
      'Draws one arrow per packet between the two ends, in the order of the capture, with retransmissions and their causes, ' +
      'NAKs, and gaps in time. The same capture gives the same drawing. If a capture has several connections, --qp or ' +
      `--connection selects one. ${SEVERAL}`,
    options: [
      {
        flags: '--qp <number>',
        summary: 'Select the connection with this queue pair at either end (0x… allowed)',
        parse: anyQpn,
      },
      {
        flags: '--connection <number>',
        summary: 'Select the connection by its number in reports and roce flows',
        parse: integer(1, Number.MAX_SAFE_INTEGER),
      },
      {
        flags: '--from <seconds>',
        summary: 'Ignore packets before this time (seconds since the first frame)',
        parse: nanoseconds,
      },
      { flags: '--to <seconds>', summary: 'Ignore packets after this time', parse: nanoseconds },
      {
        flags: '--kind <kinds>',
        summary: 'Select kinds: request,response,ack,nak,rnr,retransmission,cnp',
        parse: listOf('request', 'response', 'ack', 'nak', 'rnr', 'retransmission', 'cnp'),
      },
      { flags: '--nak', summary: 'Select NAKs, including RNR NAKs' },
      {
        flags: '--text <text>',
        summary: 'Select packets whose label contains this, ignoring case',
        parse: text,
      },
      {
        flags: '-c, --count <packets>',
        summary: 'Draw at most this number of packets',
        parse: integer(1, 100_000),
        fallback: 1000,
      },
      {
        flags: '--row-height <pixels>',
        summary: 'Height of a packet; below 15 there are no labels',
        parse: integer(4, 60),
        fallback: 24,
      },
      {
        flags: '--width <pixels>',
        summary: 'Width of the drawing',
        parse: integer(640, 10_000),
        fallback: 980,
      },
      { flags: '--title <text>', summary: 'Title of the drawing (default: the two ends)', parse: text },
      port,
      output('SVG file'),
      json('Print one JSON object about the drawing'),
    ],
    examples: [
      ['ladder trace.pcap --qp 0x11 -o ladder.svg', 'The connection of a queue pair'],
      ['ladder trace.pcap --qp 0x11 --from 1.2 --to 1.4 -o ladder.svg', 'A fifth of a second of it'],
      ['ladder trace.pcap --kind nak,rnr,retransmission -o ladder.svg', 'NAKs and retransmissions'],
    ],
    load: () => import('../commands/ladder.ts'),
  },
];
