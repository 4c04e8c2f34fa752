/** Options that select packets of a capture, and those of `roce export`. */
import { InvalidArgumentError } from 'commander';
import { addressOrPrefix, integer, nanoseconds, type OptionSpec, type Parse, text } from '../options.ts';

export const anyQpn: Parse = integer(0, 0xff_ffff);

export const address = (what: string): OptionSpec => ({
  flags: '--address <address>',
  summary: `Select ${what} from or to this address, or prefix such as 10.0.0.0/8`,
  parse: addressOrPrefix,
});

/** Which packets of a capture: the fields of `PacketFilter`. */
export const packetFilters: readonly OptionSpec[] = [
  { flags: '--qp <number>', summary: 'Select packets to this queue pair (0x… allowed)', parse: anyQpn },
  { flags: '--opcode <text>', summary: 'Select packets whose opcode name contains this', parse: text },
  address('packets'),
  { flags: '--nak', summary: 'Select NAKs, including RNR NAKs' },
  {
    flags: '--from <seconds>',
    summary: 'Ignore packets before this time (seconds since the first frame)',
    parse: nanoseconds,
  },
  { flags: '--to <seconds>', summary: 'Ignore packets after this time', parse: nanoseconds },
];

export const filter = (what: 'packets' | 'connections'): OptionSpec => ({
  flags: '--filter <expression>',
  summary: `Select ${what} by an expression such as ${what === 'packets' ? '"nak or qp == 0x11 and length > 1K"' : '"retransmitted > 0 and addr == 10.0.0.0/8"'} (docs/capture-export.md, Filters)`,
  parse: text,
});

/** A name that stands in paths, which Spark and Trino read as text. */
const hostName: Parse = (given) => {
  if (!/^\w[\w.-]{0,252}$/.test(given))
    throw new InvalidArgumentError('Expected letters, digits, dots, - and _.');
  return given;
};

/** Of a copy: tables are of the whole analysis, which a part of the packets would falsify. */
const ofCopies = (options: readonly OptionSpec[]): readonly OptionSpec[] =>
  options.map((option) => ({ ...option, notWith: '--parquet' }));

export const exportChoices: readonly OptionSpec[] = [
  ...ofCopies([
    { flags: '-o, --output <file>', summary: 'pcapng to write; - for standard output', parse: text },
  ]),
  {
    flags: '--parquet <folder>',
    summary:
      'Write tables instead: packets, messages, connections and findings as Parquet, for DuckDB, Spark or Trino',
    parse: text,
  },
  {
    flags: '--host <name>',
    summary: 'Machine that made the capture, for --parquet: part of the paths (default: unknown)',
    parse: hostName,
  },
  ...ofCopies([
    ...packetFilters,
    filter('packets'),
    {
      flags: '--connection <number>',
      summary: 'Select this connection, both directions, by its number in roce flows',
      parse: integer(1, 2 ** 31),
    },
    {
      flags: '--comments',
      summary: 'Attach findings and causes of retransmissions to packets as comments',
    },
    { flags: '--anonymize', summary: 'Anonymize addresses, and drop names and comments' },
    {
      flags: '--key <text>',
      summary: 'Key of the anonymization: files with the same key get the same addresses (default: random)',
      parse: text,
    },
    {
      flags: '--zero-payload',
      summary: 'Zero payload, immediate data, and operands and results of atomics',
    },
  ]),
];
