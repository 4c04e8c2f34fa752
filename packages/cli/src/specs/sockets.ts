/** Commands that carry bytes of any program through a socket over RDMA. */
import { integer, type OptionSpec, text } from '../options.ts';
import { udpPort } from './shared.ts';
import type { CommandSpec } from './spec.ts';

const port: OptionSpec = {
  flags: '-p, --port <port>',
  summary: 'Port of port space TCP',
  parse: integer(1, 65_535),
  fallback: 7471,
};
const both: readonly OptionSpec[] = [
  { flags: '--no-input', summary: 'Send nothing: stdin is not read' },
  { flags: '-v, --verbose', summary: 'Name the peer, and report bytes and rates at the end, on stderr' },
  udpPort,
];
const HOW =
  'Stdin goes to the peer, and what the peer sends to stdout. The end of stdin ends that direction; the command ends when both ' +
  'directions have ended. A terminal shows progress and rates. Peers are programs of rsockets (librdmacm), and this command.';

export const socketCommands: readonly CommandSpec[] = [
  {
    usage: 'listen',
    summary: 'Wait for one client, and exchange stdin and stdout with it over RDMA, as nc -l',
    description: `Waits for one client of rsockets. ${HOW}`,
    options: [
      port,
      {
        flags: '--bind <address>',
        summary: 'Local address to listen at (default: all of this machine)',
        parse: text,
      },
      ...both,
    ],
    examples: [
      ['listen > copy', 'Receive a file'],
      ['listen -p 9000 < file', 'Send a file to the first client'],
    ],
    opensDevices: true,
    load: () => import('../commands/listen.ts'),
  },
  {
    usage: 'connect <host>',
    summary: 'Connect to a program of rsockets, and exchange stdin and stdout with it over RDMA, as nc',
    description: `Connects to a listener of rsockets. ${HOW}`,
    options: [
      port,
      {
        flags: '--bind <address>',
        summary: 'Local address to connect from (default: the one that leads to the peer)',
        parse: text,
      },
      ...both,
    ],
    examples: [
      ['connect 10.0.0.1 < file', 'Send a file'],
      ['connect 10.0.0.1 --no-input | tar x', 'Receive an archive'],
    ],
    opensDevices: true,
    load: () => import('../commands/connect.ts'),
  },
];
