/** The command `perf`. Letters and long names are perftest's, so that its command lines can be kept. */
import type { ClientVersion } from '@node-roce/perf';
import { integer, type OptionSpec, oneOf, seconds, text } from '../options.ts';
import { REFUSED } from './perf-refused.ts';
import { ibvDevice, link, probes, udpPort } from './shared.ts';
import { type CommandSpec, json } from './spec.ts';

/** Those that a client can announce. The package itself is loaded when the command runs. */
const CLIENT_VERSIONS = ['6.06', '6.24', '6.29', '6.29-mlx5'] satisfies ClientVersion[];

const options: readonly OptionSpec[] = [
  {
    flags: '-s, --size <bytes>',
    summary: 'Size of a message, K and M allowed (default: 65536; 2 with lat; 8 of an atomic)',
    parse: integer(1, 2 ** 30),
  },
  { flags: '-a, --all', summary: 'Run with the sizes 2, 4, … 8 MiB, of UD to the path MTU' },
  {
    flags: '-n, --iters <count>',
    summary: 'Messages on each queue pair (default: 1000; 5000 with write bw)',
    parse: integer(5, 2 ** 32),
  },
  {
    flags: '-D, --duration <seconds>',
    summary: 'Run for this time instead of --iters',
    parse: integer(1, 86_400),
  },
  {
    flags: '-f, --margin <seconds>',
    summary: 'Leave out this time at both ends of --duration (default: a quarter of it)',
    parse: integer(0, 86_400),
  },
  { flags: '-q, --qp <count>', summary: 'Queue pairs, with bw', parse: integer(1, 16_384), fallback: 1 },
  { flags: '-b, --bidirectional', summary: 'Send from both sides, with bw' },
  {
    flags: '-m, --mtu <bytes>',
    summary: 'Largest path MTU (default: that of the interface)',
    parse: oneOf(256, 512, 1024, 2048, 4096),
  },
  {
    flags: '-I, --inline_size <bytes>',
    summary: 'Post messages of this size and less inline, with send and write (default: 0)',
    parse: integer(0, 1024),
  },
  {
    flags: '-c, --connection <type>',
    summary: 'RC; UC with send and write; UD with send',
    parse: oneOf('RC', 'UC', 'UD'),
    fallback: 'RC',
  },
  {
    flags: '-t, --tx-depth <count>',
    summary: 'Send requests under way on each queue pair (default: 128; 1 with lat)',
    parse: integer(1, 15_000),
  },
  {
    flags: '-r, --rx-depth <count>',
    summary: 'Receives posted on each queue pair (default: 512; of UC and UD all, 16000 at most)',
    parse: integer(1, 16_384),
  },
  {
    flags: '-Q, --cq-mod <count>',
    summary: 'Messages for each completion (default: 100; 1 above 8 KiB without -a and -e)',
    parse: integer(1, 1024),
  },
  {
    flags: '-o, --outs <count>',
    summary: 'READs and atomics under way on each queue pair, with read and atomic (default: 16)',
    parse: integer(1, 128),
  },
  {
    flags: '-A, --atomic_type <type>',
    summary: 'Kind of atomic, with atomic (default: FETCH_AND_ADD)',
    parse: oneOf('CMP_AND_SWAP', 'FETCH_AND_ADD'),
  },
  { flags: '-e, --events', summary: 'Sleep until a completion event instead of polling' },
  { flags: '-N, --noPeak', summary: 'Take no time at each message, so that there is no peak, with bw' },
  { flags: '-S, --sl <level>', summary: 'Service level', parse: integer(0, 15), fallback: 0 },
  {
    flags: '--tclass <value>',
    summary: 'Traffic class: DSCP << 2 | ECN',
    parse: integer(0, 255),
    fallback: 0,
  },
  {
    flags: '-u, --qp-timeout <code>',
    summary: 'ACK timeout: 4.096 µs << code',
    parse: integer(0, 31),
    fallback: 14,
  },
  { flags: '--write_with_imm', summary: 'Use WRITE with immediate, with write' },
  {
    flags: '--perform_warm_up',
    summary: 'Send some messages before the run, with bw of write, read and atomic',
  },
  {
    flags: '-p, --port <port>',
    summary: 'Port of the dialogue (default: 18515)',
    parse: integer(1, 65_535),
  },
  { flags: '-R, --rdma_cm', summary: 'Connect by the connection manager; the dialogue runs over it too' },
  ...ibvDevice,
  {
    flags: '-x, --gid-index <index>',
    summary: 'Index of the local GID, as roce devinfo lists them',
    parse: integer(0, 255),
  },
  {
    flags: '--bind <address>',
    summary: 'Local address (GID) to use (default: the one that leads to the peer)',
    parse: text,
  },
  {
    flags: '--engine <kind>',
    summary: 'Run the adapter in this thread (inline), or in another (worker)',
    parse: oneOf('inline', 'worker'),
    fallback: 'inline',
  },
  {
    flags: '--as <version>',
    summary:
      'Version of the dialogue that a client announces; 6.29-mlx5 has the longer structure of builds with mlx5dv (default: 6.24)',
    parse: oneOf(...CLIENT_VERSIONS),
  },
  { flags: '--report_gbits', summary: 'Report in Gb/s instead of MiB/s' },
  { flags: '--report-both', summary: "Print each side's figures too, with -b" },
  { flags: '--histogram', summary: 'Print latencies counted by powers of two, with lat and --iters' },
  { flags: '--out_json', summary: 'Write the last run to a file, under the names that perftest uses' },
  {
    flags: '--out_json_file <file>',
    summary: 'The file of --out_json (default: perftest_out.json)',
    parse: text,
  },
  { flags: '-F, --CPU-freq', summary: 'Accepted and ignored: no clock depends on the CPU frequency' },
  {
    flags: '--local',
    summary: 'Run both ends here, on loopback addresses; without a verb write bw and send lat',
  },
  {
    flags: '--timeout <seconds>',
    summary: 'Give up after this silence of the peer; a server waits for its client without limit',
    parse: seconds,
    fallback: 30,
  },
  link,
  probes,
  udpPort,
  json('Print one JSON object; with --local and no verb an array of two'),
];

export const perfCommands: readonly CommandSpec[] = [
  {
    usage: 'perf [verb] [measure] [host]',
    summary:
      'Measure bandwidth or latency with ib_send_bw, ib_write_lat and the others of perftest, or roce perf',
    description:
      'Speaks the dialogue of perftest. The verb is send, write, read or atomic, the measure bw or lat: roce perf write bw is ' +
      'the peer of ib_write_bw. Without a host it waits for a client, with a host it connects to the server there. Both sides ' +
      'need the same options of the test. Other options of perftest are refused by name.',
    options: [
      ...options,
      ...Object.keys(REFUSED).map((flags) => ({ flags, summary: 'Not here', hidden: true })),
    ],
    examples: [
      ['perf --local', 'A first number, from both ends on this machine'],
      ['perf write bw', 'Wait for a client, for example: ib_write_bw -x 1 HOST'],
      ['perf write bw 10.0.0.7', 'Connect to a server at 10.0.0.7, for example: ib_write_bw -x 1'],
      [
        'perf send lat -s 64 -n 10000 --histogram 10.0.0.7',
        'Latency of small messages, with ib_send_lat -x 1 -s 64 -n 10000',
      ],
      [
        'perf read bw -R -q 4 10.0.0.7',
        'Four connections of the connection manager, with ib_read_bw -R -q 4',
      ],
    ],
    choices: { verb: ['send', 'write', 'read', 'atomic'], measure: ['bw', 'lat'] },
    opensDevices: true,
    load: () => import('../commands/perf.ts'),
  },
];
