/** The command `conform`. */
import { integer, type OptionSpec, oneOf, text } from '../options.ts';
import { bind } from './shared.ts';
import { type CommandSpec, json } from './spec.ts';

const options: readonly OptionSpec[] = [
  {
    flags: '--via <way>',
    summary:
      'The program on the machine of the device. agent: the one that --print-agent prints; perftest: the servers of perftest; cm: rping -s, for the rules of the ' +
      'connection manager. model: test the reference model, without a device or network (default: agent)',
    parse: oneOf('agent', 'perftest', 'cm', 'model'),
  },
  {
    flags: '--link <link>',
    summary:
      'packet: whole frames, needs CAP_NET_RAW; udp: needs no privilege, and cannot test eleven of the rules',
    parse: oneOf('packet', 'udp'),
    fallback: 'packet',
  },
  {
    flags: '--capture <files>',
    summary:
      'Test nothing: judge the hosts in a capture by the rules about captures (TRC). Several files, separated by commas, are one capture',
    parse: text,
  },
  {
    flags: '--at <address>',
    summary:
      'Host at which the capture was made: only this host is judged, and a packet that is not in the capture counts as not sent',
    parse: text,
  },
  {
    flags: '--list',
    summary:
      'List the rules, and test nothing; with --via (and --link), those that can be tested in this way, and what the others need',
  },
  {
    flags: '--rule <ids>',
    summary: 'Test these rules and areas, separated by commas: KEY-02,PSN',
    parse: text,
  },
  { flags: '--first', summary: 'Test only the basic rules, for a device under development' },
  {
    flags: '--strict',
    summary:
      'Also count deviations from rules marked should: their reading is disputed, or the harm is small',
  },
  { flags: '--hostile', summary: 'Also test rules that may stop a device that is not robust' },
  { flags: '--slow', summary: 'Also test rules that wait for many seconds: about half a minute more' },
  {
    flags: '--device <list>',
    summary: 'List of known deviations: a name that --list shows, or a file that --learn wrote',
    parse: text,
  },
  {
    flags: '--learn <file>',
    summary: 'Write the deviations into a list; reasons that are in it, or in the list of --device, are kept',
    parse: text,
  },
  {
    flags: '--repeat <count>',
    summary: 'Test each rule this many times',
    parse: integer(1, 1000),
    fallback: 1,
  },
  {
    flags: '-p, --port <port>',
    summary:
      'TCP port of the agent (default: 18777), of ib_write_bw (default: 18515; the next two ports are those of ib_read_bw and ib_atomic_bw), or of rping (default: 7174)',
    parse: integer(1, 65_533),
  },
  { flags: '--token <text>', summary: 'Token of the agent', parse: text },
  bind('Local address to use (default: that of the route to the device)', undefined, '--source'),
  {
    flags: '--quiet <ms>',
    summary: 'Time without a packet after which the device counts as silent',
    parse: integer(1, 60_000),
    fallback: 150,
  },
  {
    flags: '--patience <ms>',
    summary: 'Time to wait for an expected packet',
    parse: integer(1, 60_000),
    fallback: 800,
  },
  {
    flags: '--slack <ms>',
    summary:
      'Time by which a packet may arrive after its deadline. No packet may arrive before its earliest time',
    parse: integer(0, 60_000),
    fallback: 50,
  },
  { flags: '--junit <file>', summary: 'Write the results as JUnit XML', parse: text },
  {
    flags: '--html <file>',
    summary: 'Write the results and their packets as an HTML page',
    parse: text,
  },
  {
    flags: '--compare <files>',
    summary:
      'Add a column to the page of --html for each of these files, which hold the --json results of other devices; separated by commas',
    parse: text,
  },
  {
    flags: '-o, --output <folder>',
    summary: 'Write the packets of each failed rule: RULE.txt and RULE.pcapng',
    parse: text,
  },
  { flags: '--print-agent', summary: 'Print the source of the agent, in C' },
  json('Print one JSON object with the results'),
];

export const conformCommands: readonly CommandSpec[] = [
  {
    usage: 'conform [host]',
    summary: 'Test whether a RoCEv2 device follows the rules of the transport',
    description:
      'Tests the device at HOST. For each rule, the tester opens new connections, sends packets (some out of order, duplicated, truncated, ' +
      'or with wrong keys and lengths), and compares the answers with the rule. If the path loses no packets, the rules about packets (TRC) judge all packets of the run; --rule and --first select some of these rules. An agent must run on the machine of the device ' +
      '(--print-agent; --via names other ways). This machine needs CAP_NET_RAW, and must be in the same network. Exit code 0: no new deviation; 1: a deviation that is not in the list of known ones; ' +
      '2: the test could not run. The rules are the project’s reading of the specification: passing them is no certification.',
    options,
    examples: [
      ['conform --print-agent > agent.c', 'Get the agent, to compile it next to the device'],
      ['conform 192.0.2.7 --first', 'Test the basic rules'],
      [
        'conform 192.0.2.7 --rule PSN,KEY-02 -o packets',
        'Test some rules, and keep the packets of those that fail',
      ],
      ['conform --capture trace.pcapng', 'Judge the hosts in a capture'],
      ['conform --via model', 'Test the reference model'],
    ],
    load: () => import('../commands/conform.ts'),
  },
];
