/** Commands that carry bytes of any program through a socket over RDMA. */
import { integer, type OptionSpec } from '../options.ts';
import { bind, udpPort } from './shared.ts';
import type { CommandSpec } from './spec.ts';

const port: OptionSpec = {
  flags: '-p, --port <port>',
  summary: 'Port (rdma_cm port space TCP)',
  parse: integer(1, 65_535),
  fallback: 7471,
};
const both: readonly OptionSpec[] = [
  { flags: '--no-input', summary: 'Send nothing: stdin is not read' },
  { flags: '-v, --verbose', summary: 'Print the peer, and at the end bytes and rates, on stderr' },
  udpPort,
];
const HOW =
  'Sends stdin to the peer, and writes what the peer sends to stdout. The end of stdin ends this direction; the command ends when ' +
  'both directions have ended. A terminal shows progress and rates. The peer is roce, or a program that uses rsockets (librdmacm).';

export const socketCommands: readonly CommandSpec[] = [
  {
    usage: 'listen',
    summary: 'Wait for one client, and exchange stdin and stdout with it over RDMA, like nc -l',
    description: `Waits for one client. ${HOW}`,
    options: [port, bind('Local address to listen at (default: all of this machine)'), ...both],
    examples: [
      ['listen > copy', 'Receive a file'],
      ['listen -p 9000 < file', 'Send a file to the first client'],
    ],
    opensDevices: true,
    load: () => import('../commands/listen.ts'),
  },
  {
    usage: 'connect <host>',
    summary: 'Connect to a listener, and exchange stdin and stdout with it over RDMA, like nc',
    description: `Connects to roce listen, or to another listener of rsockets. ${HOW}`,
    options: [port, bind('Local address to use (default: that of the route to the peer)'), ...both],
    examples: [
      ['connect 10.0.0.1 < file', 'Send a file'],
      ['connect 10.0.0.1 --no-input | tar x', 'Receive an archive'],
    ],
    opensDevices: true,
    load: () => import('../commands/connect.ts'),
  },
];
