/** The command `perf`. Letters and long names are perftest's, so that its command lines can be kept. */
import type { ClientVersion } from '@node-roce/perf';
import { integer, type OptionSpec, oneOf, seconds, text } from '../options.ts';
import { REFUSED } from './perf-refused.ts';
import { bind, ibvDevice, link, probes, udpPort } from './shared.ts';
import { type CommandSpec, json } from './spec.ts';

/** Those that a client can announce. The package itself is loaded when the command runs. */
const CLIENT_VERSIONS = ['6.06', '6.24', '6.29', '6.29-mlx5'] satisfies ClientVersion[];

const options: readonly OptionSpec[] = [
  {
    flags: '-s, --size <bytes>',
    summary: 'Size of a message, K and M allowed (default: 65536; 2 with lat; 8 with atomic)',
    parse: integer(1, 2 ** 30),
  },
  { flags: '-a, --all', summary: 'Run with the sizes 2, 4, … 8 MiB; with UD, up to the path MTU' },
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
    summary: 'Ignore this time at the start and at the end of --duration (default: a quarter of it)',
    parse: integer(0, 86_400),
  },
  {
    flags: '-q, --qp <count>',
    summary: 'Number of queue pairs (bw only)',
    parse: integer(1, 16_384),
    fallback: 1,
  },
  { flags: '-b, --bidirectional', summary: 'Send from both sides (bw only)' },
  {
    flags: '-m, --mtu <bytes>',
    summary: 'Largest path MTU (default: that of the interface)',
    parse: oneOf(256, 512, 1024, 2048, 4096),
  },
  {
    flags: '-I, --inline_size <bytes>',
    summary: 'Post messages up to this size inline (send and write only; default: 0)',
    parse: integer(0, 1024),
  },
  {
    flags: '-c, --connection <type>',
    summary: 'RC; UC (send and write only); UD (send only)',
    parse: oneOf('RC', 'UC', 'UD'),
    fallback: 'RC',
  },
  {
    flags: '-t, --tx-depth <count>',
    summary: 'Outstanding send requests per queue pair (default: 128; 1 with lat)',
    parse: integer(1, 15_000),
  },
  {
    flags: '-r, --rx-depth <count>',
    summary: 'Posted receives per queue pair (default: 512; with UC and UD one per message, at most 16000)',
    parse: integer(1, 16_384),
  },
  {
    flags: '-Q, --cq-mod <count>',
    summary: 'Messages per completion (default: 100; 1 above 8 KiB without -a and -e)',
    parse: integer(1, 1024),
  },
  {
    flags: '-o, --outs <count>',
    summary: 'Outstanding READs or atomics per queue pair (read and atomic only; default: 16)',
    parse: integer(1, 128),
  },
  {
    flags: '-A, --atomic_type <type>',
    summary: 'Kind of atomic (atomic only; default: FETCH_AND_ADD)',
    parse: oneOf('CMP_AND_SWAP', 'FETCH_AND_ADD'),
  },
  { flags: '-e, --events', summary: 'Sleep until a completion event instead of polling' },
  { flags: '-N, --noPeak', summary: 'Do not measure each message; no peak is then reported (bw only)' },
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
  { flags: '--write_with_imm', summary: 'Use WRITE with immediate (write only)' },
  {
    flags: '--perform_warm_up',
    summary: 'Send some messages before the run (write bw, read bw and atomic bw only)',
  },
  {
    flags: '-p, --port <port>',
    summary: 'TCP port over which both sides exchange parameters (default: 18515)',
    parse: integer(1, 65_535),
  },
  { flags: '-R, --rdma_cm', summary: 'Connect by the connection manager, without TCP' },
  ...ibvDevice,
  {
    flags: '-x, --gid-index <index>',
    summary: 'Index of the local GID, as roce devinfo lists them',
    parse: integer(0, 255),
  },
  bind('Local address (GID) to use (default: that of the route to the peer)'),
  {
    flags: '--engine <kind>',
    summary: 'Run the adapter in this thread (inline), or in another (worker)',
    parse: oneOf('inline', 'worker'),
    fallback: 'inline',
  },
  {
    flags: '--as <version>',
    summary:
      'Version of perftest that a client announces to the server; 6.29-mlx5: a perftest that was built with mlx5dv (default: 6.24)',
    parse: oneOf(...CLIENT_VERSIONS),
  },
  { flags: '--report_gbits', summary: 'Report in Gb/s instead of MiB/s' },
  { flags: '--report-both', summary: "Also print each side's results (-b only)" },
  {
    flags: '--histogram',
    summary: 'Print a histogram of latencies by powers of two (lat with --iters only)',
  },
  {
    flags: '--out_json',
    summary: 'Write the results of the last run to a JSON file, with the field names of perftest',
  },
  {
    flags: '--out_json_file <file>',
    summary: 'Name of this file (default: perftest_out.json)',
    parse: text,
  },
  { flags: '-F, --CPU-freq', summary: 'Accepted and ignored: no clock depends on the CPU frequency' },
  {
    flags: '--local',
    summary: 'Run both sides in this process, on loopback addresses; without a verb, write bw and send lat',
  },
  {
    flags: '--timeout <seconds>',
    summary: 'Give up if the peer sends nothing for this long; a server waits for its client without limit',
    parse: seconds,
    fallback: 30,
  },
  link,
  probes,
  udpPort,
  {
    flags: '--interval <seconds>',
    summary: 'Print messages and rate of each such interval while the test runs (at the side that measures)',
    parse: seconds,
  },
  json('Print one JSON object; with --local and without a verb, an array of two objects'),
  {
    flags: '--json-stream',
    summary: 'Print one JSON object per line: each interval (default: 1 s), then the result',
  },
];

export const perfCommands: readonly CommandSpec[] = [
  {
    usage: 'perf [verb] [measure] [host]',
    summary:
      'Measure bandwidth or latency, with perftest (ib_send_bw, ib_write_lat, …) or roce perf on the other side',
    description:
      'Compatible with perftest. The verb is send, write, read or atomic; the measure is bw (bandwidth) or lat (latency). Example: the peer ' +
      'of ib_write_bw is roce perf write bw. Without a host, the command waits for a client; with a host, it connects to the server there. Both sides need the ' +
      'same options. If an option of perftest is not supported, an error names it.',
    options: [
      ...options,
      ...Object.keys(REFUSED).map((flags) => ({ flags, summary: 'Not here', hidden: true })),
    ],
    examples: [
      ['perf --local', 'Measure on this machine alone'],
      ['perf write bw -D 10 --interval 1 10.0.0.7', 'Run for ten seconds, and print the rate of each second'],
      ['perf write bw', 'Wait for a client, which may be ib_write_bw -x 1 HOST'],
      ['perf write bw 10.0.0.7', 'Connect to the server at 10.0.0.7, which may be ib_write_bw -x 1'],
      [
        'perf send lat -s 64 -n 10000 --histogram 10.0.0.7',
        'Latency of small messages; the server may be ib_send_lat -x 1 -s 64 -n 10000',
      ],
      [
        'perf read bw -R -q 4 10.0.0.7',
        'Four connections by the connection manager; the server may be ib_read_bw -R -q 4',
      ],
    ],
    choices: { verb: ['send', 'write', 'read', 'atomic'], measure: ['bw', 'lat'] },
    opensDevices: true,
    load: () => import('../commands/perf.ts'),
  },
];
