/** Options of a command: how they are declared, and how their text becomes a value or a usage error. */
import { parseIpAddress } from '@node-roce/wire';
import { type Command, InvalidArgumentError, Option } from 'commander';

/** As a file argument: standard input or standard output. */
export const DASH = '-';

/** The command line is wrong: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** Turns the text of the command line into a value, or throws an error that names the expected values. */
export interface Parse {
  (given: string): unknown;
  /** The values that it takes, if they can be listed. */
  values?: readonly string[];
  /** It takes several of them, separated by commas. */
  some?: boolean;
}

/** An option, the one place that parsing, help and checks read. */
export interface OptionSpec {
  /** As commander takes it: `-s, --size <bytes>`; without `<…>` it is a switch. */
  flags: string;
  summary: string;
  parse?: Parse;
  required?: boolean;
  /** The value of an absent option (a text is parsed like one that was typed), shown in the help. */
  fallback?: number | string;
  /** Not in the help. */
  hidden?: boolean;
  /** The long name of an option that it does not combine with. */
  notWith?: string;
  /** An older long name, without its value: it still works, with a warning. */
  old?: string;
}

const expected = (what: string) => new InvalidArgumentError(`Expected ${what}.`);

/** A whole number of `least` … `most`; `0x…` is understood, and so are K, M and G for powers of 1024. */
export const integer =
  (least: number, most: number): Parse =>
  (given) => {
    const match = /^(0x[0-9a-f]+|\d+)([kmg]?)$/i.exec(given);
    const unit = { '': 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30 }[match?.[2]?.toLowerCase() ?? ''] ?? 1;
    const value = match ? Number(match[1]) * unit : Number.NaN;
    if (!(value >= least && value <= most)) throw expected(`a whole number of ${least} … ${most}`);
    return value;
  };

/** Any number of 0 … 100. */
export const percent: Parse = (given) => {
  const value = given === '' ? Number.NaN : Number(given);
  if (!(value >= 0 && value <= 100)) throw expected('a number of 0 … 100');
  return value;
};

export const oneOf = (...values: readonly (number | string)[]): Parse => {
  const parse: Parse = (given) => {
    const found = values.find((value) => String(value) === given);
    if (found === undefined) throw expected(`one of ${values.join(', ')}`);
    return found;
  };
  return Object.assign(parse, { values: values.map(String) });
};

/** 2^31 − 1 ms, the longest time of a timer: a longer one would end at once. */
const MAX_SECONDS = 2_147_483;

/** Seconds, of any fraction, above 0. */
export const seconds: Parse = (given) => {
  const value = Number(given);
  if (!(value > 0 && value <= MAX_SECONDS))
    throw expected(`a number of seconds above 0, ${MAX_SECONDS} at most`);
  return value;
};

/** Seconds of any fraction, 0 included; as nanoseconds. */
export const nanoseconds: Parse = (given) => {
  const value = given === '' ? Number.NaN : Number(given);
  if (!(Number.isFinite(value) && value >= 0)) throw expected('a number of seconds');
  return Math.round(value * 1e9);
};

/** Some of these, separated by commas. */
export const listOf = (...values: readonly string[]): Parse => {
  const parse: Parse = (given) => {
    const items = given.split(',');
    if (!items.every((item) => values.includes(item))) throw expected(`some of ${values.join(',')}`);
    return items;
  };
  return Object.assign(parse, { values, some: true });
};

/** `10x100M`: a number of files, and bytes of each. */
export const ring: Parse = (given) => {
  const match = /^(\d{1,6})x(.+)$/.exec(given);
  const files = Number(match?.[1] ?? 0);
  if (match === null || files < 2)
    throw expected('files and bytes of each, such as 10x100M; 2 files at least');
  return { files, bytes: integer(4096, 2 ** 40)(match[2]) };
};

/** Words, separated by commas; the command checks them. */
export const words: Parse = (given) => {
  const items = given.split(',');
  if (items.includes('')) throw expected('words, separated by commas');
  return items;
};

/** UDP ports, separated by commas. */
export const ports: Parse = (given) => {
  const items = given.split(',').map((item) => (/^\d{1,5}$/.test(item) ? Number(item) : 0));
  if (!items.every((item) => item >= 1 && item <= 65_535)) throw expected('UDP ports of 1 … 65535');
  return items;
};

export const text: Parse = (given) => {
  if (given === '') throw expected('a non-empty string');
  return given;
};

/** An IPv4 or IPv6 address, with or without `/length`; the text as it was typed. */
export const addressOrPrefix: Parse = (given) => {
  const [address = '', length, ...rest] = given.split('/');
  const bytes = parseIpAddress(address);
  const fits =
    length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= (bytes?.length ?? 0) * 8);
  if (bytes === undefined || !fits || rest.length > 0)
    throw expected('an address, or a prefix such as 10.0.0.0/8');
  return given;
};

/** Declares an option at a command. An option that is given twice is refused. */
export function declare(
  command: Command,
  { flags, summary, parse, required, fallback, hidden, old }: OptionSpec,
): void {
  const option = new Option(flags, summary).makeOptionMandatory(required === true);
  if (parse !== undefined) {
    let given = false;
    option.argParser((value: string) => {
      if (given) throw new InvalidArgumentError('The option is given more than once.');
      given = true;
      return parse(value);
    });
  }
  if (fallback !== undefined)
    option.default(typeof fallback === 'string' ? parse?.(fallback) : fallback, String(fallback));
  if (hidden) option.hideHelp();
  command.addOption(option);
  if (old !== undefined)
    declare(command, {
      flags: old + flags.slice(flags.indexOf(' <')),
      summary,
      ...(parse && { parse }),
      hidden: true,
    });
}

/** The name of an option's value: `zeroPayload` of `--zero-payload`. */
export const attributeOf = (flags: string): string => new Option(flags, '').attributeName();

/** Moves values of older names to their options. Calls `warn` for each. */
export function withNewNames(
  given: Readonly<Record<string, unknown>>,
  specs: readonly OptionSpec[],
  warn: (text: string) => void,
): Record<string, unknown> {
  const values = { ...given };
  for (const { flags, old } of specs) {
    if (old === undefined) continue;
    const [attribute, older] = [attributeOf(flags), attributeOf(old)];
    if (values[older] === undefined) continue;
    const name = /--[\w-]+/.exec(flags)?.[0];
    if (values[attribute] !== undefined)
      throw new UsageError(`${old} is the old name of ${name}: give only one`);
    warn(`${old} is the old name of ${name}`);
    values[attribute] = values[older];
    delete values[older];
  }
  return values;
}
