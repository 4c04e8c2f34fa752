/** The texts of `--help`. */
import { type CommandSpec, commands, nameOf } from './commands.ts';
import type { OptionSpec } from './options.ts';
import type { Terminal } from './terminal.ts';

const GLOBAL_OPTIONS: readonly OptionSpec[] = [
  { flags: '-h, --help', summary: 'Print this help' },
  { flags: '--version', summary: 'Print the version' },
];

function columns(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length)) + 2;
  return rows.map(([left, right]) => `  ${left.padEnd(width)}${right}`);
}

// Options with a short form and without line up.
const flagsOf = ({ flags }: OptionSpec) => (flags.startsWith('--') ? `    ${flags}` : flags);

const optionRows = (options: readonly OptionSpec[]) =>
  columns(
    options.map((option) => [
      flagsOf(option),
      option.fallback === undefined ? option.summary : `${option.summary} [${option.fallback}]`,
    ]),
  );

export function generalHelp(version: string, { colors }: Terminal): string {
  return [
    `roce ${version}: RoCEv2 in software. Talks to rdma_rxe and ConnectX, reads RoCE captures.`,
    '',
    colors.bold('Usage'),
    '  roce <command> [options]',
    '',
    colors.bold('Commands'),
    ...columns(commands.map((command) => [command.usage, command.summary])),
    '',
    colors.bold('Options'),
    ...optionRows(GLOBAL_OPTIONS),
    '',
    colors.bold('Examples'),
    ...columns([
      ['roce demo', 'two adapters on loopback'],
      ['roce pingpong 10.0.0.7', 'the client of ibv_rc_pingpong -g 1'],
      ['roce dump trace.pcap', 'the packets of a capture'],
    ]),
    '',
    "'roce <command> --help' tells more. Exit codes: 0 ok, 1 ran but failed, 2 wrong usage, 130 interrupted.",
  ].join('\n');
}

export function commandHelp(command: CommandSpec, { colors }: Terminal): string {
  return [
    `${command.summary}.`,
    '',
    command.description,
    '',
    colors.bold('Usage'),
    `  roce ${nameOf(command)} [options]${command.usage.slice(nameOf(command).length)}`,
    '',
    colors.bold('Options'),
    ...optionRows([...command.options, GLOBAL_OPTIONS[0]!]),
    '',
    colors.bold('Examples'),
    ...columns(command.examples.map(([line, what]) => [`roce ${line}`, what])),
  ].join('\n');
}
