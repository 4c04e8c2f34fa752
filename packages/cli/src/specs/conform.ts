/** The command `conform`. */
import { integer, type OptionSpec, oneOf, text } from '../options.ts';
import { type CommandSpec, json } from './spec.ts';

const options: readonly OptionSpec[] = [
  {
    flags: '--via <way>',
    summary:
      'agent: a program next to the device (--print-agent); perftest: servers of perftest there; cm: rping -s there, for the rules of the ' +
      'connection manager; model: the reference model, without a network',
    parse: oneOf('agent', 'perftest', 'cm', 'model'),
    fallback: 'agent',
  },
  {
    flags: '--link <link>',
    summary:
      'packet: whole frames, with CAP_NET_RAW; udp: without a privilege, and without eleven of the rules',
    parse: oneOf('packet', 'udp'),
    fallback: 'packet',
  },
  {
    flags: '--capture <files>',
    summary:
      'Play nothing: judge the hosts in a capture by the rules about captures (TRC). Several files, separated by commas, are one capture',
    parse: text,
  },
  {
    flags: '--at <address>',
    summary:
      'Host at which the capture was made: only this host is judged, and a packet that is not in the capture counts as not sent',
    parse: text,
  },
  { flags: '--list', summary: 'List the rules instead of playing them' },
  { flags: '--rule <ids>', summary: 'Rules and areas, separated by commas: KEY-02,PSN', parse: text },
  { flags: '--first', summary: 'Play the rules that a young device should have first' },
  {
    flags: '--strict',
    summary:
      'Count deviations from rules marked should, too: their reading is disputed, or the harm is small',
  },
  { flags: '--hostile', summary: 'Play rules that may stop a device that is not robust, too' },
  {
    flags: '--device <list>',
    summary: 'List of known deviations: a name that --list shows, or a file that --learn wrote',
    parse: text,
  },
  {
    flags: '--learn <file>',
    summary: 'Write the deviations found into a list; reasons in it, or in that of --device, stay',
    parse: text,
  },
  {
    flags: '--repeat <count>',
    summary: 'Play each rule so many times',
    parse: integer(1, 1000),
    fallback: 1,
  },
  {
    flags: '-p, --port <port>',
    summary:
      'TCP port of the agent (18777), or of ib_write_bw (18515), with ib_read_bw and ib_atomic_bw behind it; port of rping (7174)',
    parse: integer(1, 65_533),
  },
  { flags: '--token <text>', summary: 'Token of the agent', parse: text },
  {
    flags: '--source <address>',
    summary: 'Local address to use (default: the one that leads to the device)',
    parse: text,
  },
  {
    flags: '--quiet <ms>',
    summary: 'Time without a packet that counts as silence',
    parse: integer(1, 60_000),
    fallback: 150,
  },
  {
    flags: '--patience <ms>',
    summary: 'Time to wait for a packet that is due',
    parse: integer(1, 60_000),
    fallback: 800,
  },
  {
    flags: '--slack <ms>',
    summary: 'Time by which a packet may come later than the latest time; never earlier than the least',
    parse: integer(0, 60_000),
    fallback: 50,
  },
  { flags: '--junit <file>', summary: 'Write the results as JUnit XML', parse: text },
  {
    flags: '--html <file>',
    summary: 'Write the results, and the packets behind them, as a page',
    parse: text,
  },
  {
    flags: '--compare <files>',
    summary: 'Further columns of the page: results of other devices that --json printed, separated by commas',
    parse: text,
  },
  {
    flags: '-o, --output <folder>',
    summary: 'Write the packets of each rule that is not passed: RULE.txt and RULE.pcapng',
    parse: text,
  },
  { flags: '--print-agent', summary: 'Print the source of the agent, in C' },
  json('Print one JSON object with the results'),
];

export const conformCommands: readonly CommandSpec[] = [
  {
    usage: 'conform [host]',
    summary: 'Test whether a RoCEv2 device keeps the rules of the transport',
    description:
      'Plays rules against the device at HOST, each on connections of its own: packets out of order, repeated, cut, with wrong keys and ' +
      'lengths, lost answers, late answers. The device needs the agent next to it (or a service of rping, for the connection manager alone: --via cm), and this machine CAP_NET_RAW and the same network. ' +
      'Exit code 0: nothing new; 1: a deviation that no list of known ones has; 2: the tester could not work. ' +
      'The rules are the project’s reading of the specification: passing them is no certification.',
    options,
    examples: [
      ['conform --print-agent > agent.c', 'Get the agent, to compile it next to the device'],
      ['conform 192.0.2.7 --first', 'Play the first rules'],
      [
        'conform 192.0.2.7 --rule PSN,KEY-02 -o packets',
        'Play some rules, and keep the packets of those that fail',
      ],
      ['conform --capture trace.pcapng', 'Judge the hosts in a capture'],
      ['conform --via model', 'Play the rules against the reference model'],
    ],
    load: () => import('../commands/conform.ts'),
  },
];
