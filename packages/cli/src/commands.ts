/**
 * The commands: names, options, examples. What a command does is in `commands/NAME.ts`, loaded when it
 * runs, so that reading a capture needs no native addon and `--help` is quick.
 */
import {
  addressOrPrefix,
  integer,
  listOf,
  nanoseconds,
  type OptionSpec,
  oneOf,
  percent,
  seconds,
  text,
} from './options.ts';
import type { Terminal } from './terminal.ts';

/** Runs a command; resolves to its exit code. */
export type Action = (
  args: readonly string[],
  // biome-ignore lint/suspicious/noExplicitAny: each command names the types of the options it declared.
  options: any,
  terminal: Terminal,
) => Promise<number>;

export interface CommandSpec {
  /** As cac takes it: `dump <file>`, `pingpong [host]`. */
  usage: string;
  summary: string;
  /** A few sentences for the command's own help. */
  description: string;
  options: readonly OptionSpec[];
  /** Command lines without the leading `roce`, each with what it does. */
  examples: readonly (readonly [line: string, what: string])[];
  load: () => Promise<{ run: Action }>;
}

export const nameOf = (command: CommandSpec): string => command.usage.split(' ')[0]!;

const json = (what: string): OptionSpec => ({ flags: '--json', summary: what });

/** For machines where something else has the port; peers other than this program know 4791 only. */
const udpPort: OptionSpec = {
  flags: '--udp-port <port>',
  summary: 'UDP port instead of 4791, where another program has that; the peer needs the same',
  parse: integer(1, 65_535),
  fallback: 4791,
};

const link: OptionSpec = {
  flags: '--link <kind>',
  summary: 'udp: the native addon; dgram: node:dgram, for node-roce peers only; auto: what there is',
  parse: oneOf('auto', 'udp', 'dgram'),
  fallback: 'auto',
};

/** Which packets of a capture: the fields of `PacketFilter`. */
const packetFilters: readonly OptionSpec[] = [
  {
    flags: '--qp <number>',
    summary: 'Only packets to this queue pair (0x… allowed)',
    parse: integer(0, 0xff_ffff),
  },
  { flags: '--opcode <text>', summary: "Only packets whose opcode's name contains this", parse: text },
  {
    flags: '--address <address>',
    summary: 'Only packets from or to this address, or prefix such as 10.0.0.0/8',
    parse: addressOrPrefix,
  },
  { flags: '--nak', summary: 'Only NAKs, RNR NAKs included' },
  {
    flags: '--from <seconds>',
    summary: 'Only packets of this time on, counted from the first frame',
    parse: nanoseconds,
  },
  { flags: '--to <seconds>', summary: 'Only packets up to this time', parse: nanoseconds },
];

const icrcMode: OptionSpec = {
  flags: '--icrc <mode>',
  summary: 'check: every ICRC; skip: none, which is quicker',
  parse: oneOf('check', 'skip'),
  fallback: 'check',
};

export const commands: readonly CommandSpec[] = [
  {
    usage: 'demo',
    summary: 'Two adapters on loopback exchange messages: the quickest look at what this is',
    description:
      'Opens two adapters on loopback addresses, connects a queue pair on each, moves data by SEND, RDMA WRITE\n' +
      'and RDMA READ, compares SHA-256 of source and destination, does it again over a link that loses packets, and\n' +
      'writes every packet of one message of each kind into a capture. Needs neither root nor a network card; without\n' +
      'the native addon it runs over node:dgram.',
    options: [
      { flags: '--a <address>', summary: 'Address of the first adapter', parse: text, fallback: '127.0.0.1' },
      {
        flags: '--b <address>',
        summary: 'Address of the second adapter',
        parse: text,
        fallback: '127.0.0.2',
      },
      {
        flags: '--size <bytes>',
        summary: 'Bytes that each operation moves in all (K, M, G allowed)',
        parse: integer(1, 2 ** 30),
        fallback: '16M',
      },
      {
        flags: '--loss <percent>',
        summary: 'Packets lost each way the second time; 0: no second time',
        parse: percent,
        fallback: 1,
      },
      {
        flags: '--seed <number>',
        summary: 'Decides which packets are lost',
        parse: integer(0, 2 ** 32 - 1),
        fallback: 1,
      },
      link,
      { flags: '--trace <file>', summary: 'Where the capture goes', parse: text, fallback: 'demo.pcapng' },
      udpPort,
      json('Print one JSON object'),
    ],
    examples: [
      ['demo', 'everything with its defaults'],
      ['demo --a 127.0.0.3 --b 127.0.0.4', 'other addresses, when UDP port 4791 of the first ones is taken'],
      ['demo --loss 5 --seed 7', 'more loss, other packets'],
      ['demo --link dgram', 'as on a machine without a compiler'],
      ['dump demo.pcapng | head', 'the packets of the last demo'],
    ],
    load: () => import('./commands/demo.ts'),
  },
  {
    usage: 'pingpong [host]',
    summary: 'Exchange messages with ibv_rc_pingpong and its kin, or another roce pingpong',
    description:
      'Speaks the exchange of ibv_rc_pingpong; with --type uc or ud that of ibv_uc_pingpong or ibv_ud_pingpong, with\n' +
      '--srq that of ibv_srq_pingpong. Without a host it waits for a client; with one it connects to the server\n' +
      'there. Both sides need the same --mtu, --size and --iters, and with --srq the same --num-qp.',
    options: [
      {
        flags: '-t, --type <service>',
        summary: 'rc: reliable connection; uc: unreliable connection; ud: datagrams',
        parse: oneOf('rc', 'uc', 'ud'),
        fallback: 'rc',
      },
      { flags: '--srq', summary: 'Several queue pairs, whose receives come from one shared receive queue' },
      {
        flags: '-q, --num-qp <count>',
        summary: 'Queue pairs with --srq (default: 16)',
        parse: integer(1, 256),
      },
      {
        flags: '-p, --port <port>',
        summary: 'TCP port of the exchange of addresses',
        parse: integer(1, 65535),
        fallback: 18515,
      },
      {
        flags: '-s, --size <bytes>',
        summary: 'Size of a message (K, M, G allowed); default: 4096, and 2048 with --type ud',
        parse: integer(1, 2 ** 30),
      },
      {
        flags: '-n, --iters <count>',
        summary: 'Messages each way',
        parse: integer(1, 2 ** 31 - 1),
        fallback: 1000,
      },
      {
        flags: '-m, --mtu <bytes>',
        summary: 'Path MTU; datagrams have that of the port',
        parse: oneOf(256, 512, 1024, 2048, 4096),
        fallback: 1024,
      },
      {
        flags: '-r, --rx-depth <count>',
        summary: 'Receives posted at a time',
        parse: integer(1, 32_768),
        fallback: 500,
      },
      { flags: '-e, --events', summary: 'Sleep until a completion event instead of polling' },
      { flags: '-c, --check', summary: 'Validate what came back; the server echoes, the client compares' },
      {
        flags: '--bind <address>',
        summary: 'Local address (GID) to use; else the one that leads to the peer',
        parse: text,
      },
      {
        flags: '--timeout <seconds>',
        summary: 'Give up when the peer is silent for so long; a server waits for its client for ever',
        parse: seconds,
        fallback: 30,
      },
      udpPort,
      json('Print one JSON object'),
    ],
    examples: [
      ['pingpong', 'wait for a client, for example: ibv_rc_pingpong -g 1 HOST'],
      ['pingpong 10.0.0.7', 'be the client of a server at 10.0.0.7, for example: ibv_rc_pingpong -g 1'],
      ['pingpong --mtu 4096 --size 1M --iters 100 fd00::7', 'large messages over IPv6'],
      [
        'pingpong --type ud --size 1024 10.0.0.7',
        'datagrams, for example with: ibv_ud_pingpong -g 1 -s 1024',
      ],
      ['pingpong --srq -q 4 10.0.0.7', 'four queue pairs, for example with: ibv_srq_pingpong -g 1 -q 4'],
      ['pingpong --bind 127.0.0.2 & roce pingpong --bind 127.0.0.1 127.0.0.2', 'both ends on one machine'],
    ],
    load: () => import('./commands/pingpong.ts'),
  },
  {
    usage: 'dump <file>',
    summary: 'Print the RoCE packets of a capture, one a line, with the ICRC verdict',
    description:
      'Reads pcap and pcapng, also compressed with gzip; - reads standard input. Prints RoCE v2 and v1 packets;\n' +
      'other frames are counted. Super-packets captured on lo or veth are split into their packets, and what an\n' +
      'ERSPAN or VXLAN mirror carries is taken out of it.\n' +
      'A damaged file is printed as far as it can be read; the exit code is then 1.',
    options: [
      { flags: '-x, --fields', summary: 'Print every field of every packet, with its bytes' },
      {
        flags: '--json',
        summary: 'Print one JSON object a packet',
      },
      ...packetFilters,
      { flags: '--retransmissions', summary: 'Only packets that were sent before, with the cause' },
      {
        flags: '-c, --count <packets>',
        summary: 'Stop after so many packets',
        parse: integer(1, Number.MAX_SAFE_INTEGER),
      },
    ],
    examples: [
      ['dump trace.pcap', 'one line a packet'],
      ['dump --json trace.pcapng.gz', 'one JSON object a packet'],
      ['dump -x -c 1 trace.pcap', 'the first packet, field by field'],
      ["dump --qp 0x11 --opcode 'RDMA Write' trace.pcap", 'WRITEs to one queue pair'],
      ['dump --nak trace.pcap', 'what was refused'],
      ['dump --retransmissions trace.pcap', 'what was sent again, and why'],
      ['dump - < trace.pcap', 'from standard input'],
    ],
    load: () => import('./commands/dump.ts'),
  },
  {
    usage: 'export <file>',
    summary: 'Copy a part of a capture, on request without addresses and payload',
    description:
      'Writes the RoCE packets that the filters choose into a pcapng, each in a frame of its own: super-packets are taken\n' +
      'apart, and packets out of their mirrors. --anonymize gives hosts pseudonyms: addresses that share a prefix share one\n' +
      "afterwards, private ranges stay private, MAC addresses and the connection manager's messages are seen to. Checksums\n" +
      'and ICRCs are computed anew; an ICRC that was wrong stays wrong.',
    options: [
      {
        flags: '-o, --output <file>',
        summary: 'pcapng to write; - for standard output',
        parse: text,
        required: true,
      },
      ...packetFilters,
      {
        flags: '--connection <number>',
        summary: 'Only this connection, both directions; numbers are those of roce flows',
        parse: integer(1, 2 ** 31),
      },
      { flags: '--comments', summary: 'Put findings and causes of retransmissions beside their packets' },
      { flags: '--anonymize', summary: 'Give addresses pseudonyms, and leave out names and comments' },
      {
        flags: '--key <text>',
        summary: 'Same key, same pseudonyms: for captures that belong together [random]',
        parse: text,
      },
      {
        flags: '--zero-payload',
        summary: 'Zero payload, immediate data, and operands and results of atomics',
      },
      json('Print one JSON object about what was written'),
    ],
    examples: [
      ['export trace.pcap --from 1.2 --to 1.3 -o slice.pcapng', 'a tenth of a second'],
      ['export trace.pcap --comments -o remarks.pcapng', 'for Wireshark: frame.comment shows what was found'],
      ['export trace.pcap --connection 3 -o third.pcapng', 'one connection'],
      ['export trace.pcap --anonymize --zero-payload -o public.pcapng', 'to show to others'],
      ["export a.pcap --anonymize --key 'ours' -o a.pcapng", 'and b.pcap likewise: both name a host alike'],
      ['export trace.pcap --qp 0x11 -o - | tshark -r -', 'on to another program'],
    ],
    load: () => import('./commands/export.ts'),
  },
  {
    usage: 'flows <file>',
    summary: 'The connections of a capture: messages, retransmissions with their causes, and what stands out',
    description:
      'Puts the two directions of each connection together, by what the connection manager said or else by the PSNs of\n' +
      'requests and answers (column paired: how sure that is), and counts what went each way: a to b / b to a. Below the\n' +
      'table stand the findings, worst first, each with what to check and the packets behind it.\n' +
      'Of a damaged file it shows what was readable; the exit code is then 1.',
    options: [
      icrcMode,
      json('Print one JSON object: connections with all counts and series, findings'),
      { flags: '--csv', summary: 'Print the findings as CSV' },
    ],
    examples: [
      ['flows trace.pcap', 'the connections and findings'],
      ["flows --json trace.pcap | jq '.connections[].ackLatency'", 'for programs'],
      ['flows --icrc skip trace.pcapng.gz', 'quicker, where damaged packets do not matter'],
    ],
    load: () => import('./commands/flows.ts'),
  },
  {
    usage: 'messages <file>',
    summary: 'The messages of a capture: operation, size, packets, latency, outcome; one a line',
    description:
      'Each SEND, RDMA WRITE, RDMA READ and atomic, put together from its packets, as it ends: those of one requester in\n' +
      'the order of their PSNs. Latency is from the last packet of the request to the ACK that covers it, or to the last\n' +
      'response. Of a damaged file it shows what was readable; the exit code is then 1.',
    options: [
      {
        flags: '--qp <number>',
        summary: 'Only messages from or to this queue pair (0x… allowed)',
        parse: integer(0, 0xff_ffff),
      },
      { flags: '--operation <text>', summary: 'Only operations whose name contains this', parse: text },
      {
        flags: '--outcome <word>',
        summary: 'Only these: completed, failed, incomplete',
        parse: oneOf('completed', 'failed', 'incomplete'),
      },
      { flags: '--retransmitted', summary: 'Only messages of which packets were sent again' },
      icrcMode,
      json('Print one JSON object a message'),
      { flags: '--csv', summary: 'Print CSV with a heading' },
    ],
    examples: [
      ['messages trace.pcap', 'all messages'],
      ['messages --outcome failed trace.pcap', 'those that failed, and why'],
      ['messages --csv trace.pcap > messages.csv', 'for a spreadsheet'],
    ],
    load: () => import('./commands/messages.ts'),
  },
  {
    usage: 'report <file>',
    summary: 'Write an HTML report of a capture: findings, connections, plots, ladders, packets',
    description:
      'One file that needs nothing but a browser and loads nothing from anywhere: what went wrong first, then each\n' +
      'connection with its PSNs, throughput and latency over time, a ladder of its packets with all their fields, and its\n' +
      'messages. Of long captures it holds a selection; the page says what was left out.\n' +
      'Of a damaged file it shows what was readable; the exit code is then 1.',
    options: [
      {
        flags: '-o, --output <file>',
        summary: 'HTML file to write; - for standard output',
        parse: text,
        required: true,
      },
      { flags: '--title <text>', summary: "Instead of the file's name", parse: text },
      icrcMode,
      json('Print one JSON object about what was written'),
    ],
    examples: [
      ['report trace.pcap -o report.html', 'the report'],
      ['report - -o report.html < trace.pcapng.gz', 'from standard input'],
    ],
    load: () => import('./commands/report.ts'),
  },
  {
    usage: 'ladder <file>',
    summary: 'Draw the packets of a connection as a ladder, in SVG',
    description:
      'An arrow a packet between the two ends, in the order in which the capture has them, with retransmissions and their\n' +
      'causes, NAKs, and where time passes. The same capture gives the same drawing. Where a capture has several connections, --qp or\n' +
      '--connection chooses one.',
    options: [
      {
        flags: '--qp <number>',
        summary: 'The connection with this queue pair at either end (0x… allowed)',
        parse: integer(0, 0xff_ffff),
      },
      {
        flags: '--connection <number>',
        summary: 'The connection with this number in reports and roce flows',
        parse: integer(1, Number.MAX_SAFE_INTEGER),
      },
      {
        flags: '--from <seconds>',
        summary: 'Leave out what came before, since the first frame',
        parse: nanoseconds,
      },
      { flags: '--to <seconds>', summary: 'Leave out what came after', parse: nanoseconds },
      {
        flags: '--kind <kinds>',
        summary: 'Only these: request,response,ack,nak,rnr,retransmission,cnp',
        parse: listOf('request', 'response', 'ack', 'nak', 'rnr', 'retransmission', 'cnp'),
      },
      { flags: '--nak', summary: 'Only NAKs, RNR NAKs included' },
      {
        flags: '--text <text>',
        summary: 'Only packets whose label contains this, in letters of any case',
        parse: text,
      },
      {
        flags: '-c, --count <packets>',
        summary: 'Draw so many packets at most',
        parse: integer(1, 100_000),
        fallback: 1000,
      },
      {
        flags: '--row-height <pixels>',
        summary: 'Height of a packet; below 15 there is no text',
        parse: integer(4, 60),
        fallback: 24,
      },
      {
        flags: '--width <pixels>',
        summary: 'Width of the drawing',
        parse: integer(640, 10_000),
        fallback: 980,
      },
      { flags: '--title <text>', summary: 'Instead of the two ends', parse: text },
      {
        flags: '-o, --output <file>',
        summary: 'SVG file to write; - for standard output',
        parse: text,
        required: true,
      },
      json('Print one JSON object about what was drawn'),
    ],
    examples: [
      ['ladder trace.pcap --qp 0x11 -o ladder.svg', 'the connection of a queue pair'],
      ['ladder trace.pcap --qp 0x11 --from 1.2 --to 1.4 -o ladder.svg', 'a fifth of a second of it'],
      ['ladder trace.pcap --kind nak,rnr,retransmission -o ladder.svg', 'what went wrong'],
    ],
    load: () => import('./commands/ladder.ts'),
  },
  {
    usage: 'capture',
    summary: 'Capture the RoCE packets of an interface, into a file or as a live table',
    description:
      'A filter in the kernel takes RoCE v2 (UDP to port 4791) and v1, with or without VLAN tags. Without -w a table of\n' +
      'the flows is shown each second (again: requests whose PSN had passed before; bad: ICRCs; CE: marked by ECN); where\n' +
      'stdout is no terminal, a line with the totals. Ctrl-C ends the capture, with a valid file. Frames that the kernel\n' +
      'had no room for are counted. Needs the capability CAP_NET_RAW.\n' +
      'A network card that does RoCE in hardware does not show its own packets to the kernel: capture at a mirror port.',
    options: [
      { flags: '-i, --interface <name>', summary: 'Network interface', parse: text },
      {
        flags: '-w, --write <file>',
        summary: 'Write pcapng into this file; - for standard output',
        parse: text,
      },
      { flags: '--live', summary: 'Show the table although a file is written' },
      {
        flags: '-c, --count <frames>',
        summary: 'Stop after so many frames',
        parse: integer(1, Number.MAX_SAFE_INTEGER),
      },
      { flags: '-d, --duration <seconds>', summary: 'Stop after this time', parse: seconds },
      {
        flags: '-s, --snaplen <bytes>',
        summary: 'Bytes to keep of a frame; 128 hold all headers, but no ICRC of a packet with payload',
        parse: integer(64, 262_144),
        fallback: 262_144,
      },
      {
        flags: '--buffer <bytes>',
        summary: 'Room for frames that wait in the kernel (K, M, G allowed)',
        parse: integer(2 ** 20, 2 ** 30),
        fallback: '64M',
      },
      { flags: '--mirrors', summary: 'Also take ERSPAN (GRE) and VXLAN, as a mirror port may bring them' },
      { flags: '--host-only', summary: 'No promiscuous mode: only frames from and to this machine' },
      json('Print JSON: an object each second that the table would be shown, and one at the end'),
    ],
    examples: [
      ['capture -i eth0', 'a table of what passes'],
      ['capture -i eth0 -w trace.pcapng --live', 'the same while a file is written'],
      ['capture -i eth0 -w headers.pcapng -s 128 -d 60', 'a minute of headers'],
      ['capture -i eth0 -w - | wireshark -k -i -', 'look at it with Wireshark'],
    ],
    load: () => import('./commands/capture.ts'),
  },
  {
    usage: 'devinfo',
    summary: 'List the devices: interfaces with their GIDs, MTU and limits',
    description: 'Every interface with an address can be a device. No privilege is needed.',
    options: [{ flags: '-v, --verbose', summary: 'Also print the limits' }, json('Print one JSON object')],
    examples: [
      ['devinfo', 'the devices'],
      ['devinfo --json', 'for programs'],
    ],
    load: () => import('./commands/devinfo.ts'),
  },
  {
    usage: 'doctor [peer]',
    summary: 'Check what RoCE in software needs on this machine, and the way to a peer',
    description:
      'Each check says ok, warn or fail, and what to do. Nothing is changed on the machine, and no packet is sent\n' +
      'to the peer but one empty UDP datagram to port 4791. The exit code is 1 when a check fails.',
    options: [
      {
        flags: '--bind <address>',
        summary: 'Look at this local address instead of the one that leads to the peer',
        parse: text,
      },
      json('Print one JSON object'),
    ],
    examples: [
      ['doctor', 'is this machine ready?'],
      ['doctor 10.0.0.7', 'and the way to a peer'],
    ],
    load: () => import('./commands/doctor.ts'),
  },
];
