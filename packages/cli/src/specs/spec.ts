/** How a command is declared. */
import type { OptionSpec } from '../options.ts';
import type { Terminal } from '../terminal.ts';

/** Runs a command; resolves to its exit code. */
type Action = (
  args: readonly string[],
  // biome-ignore lint/suspicious/noExplicitAny: each command names the types of the options it declared.
  options: any,
  terminal: Terminal,
) => Promise<number>;

export interface CommandSpec {
  /** As commander takes it: `dump <file>`, `pingpong [host]`. */
  usage: string;
  /** One line for the list of commands. */
  summary: string;
  /** A few sentences for the command's own help. */
  description: string;
  options: readonly OptionSpec[];
  /** Values of an argument, by its name in `usage`. */
  choices?: Readonly<Record<string, readonly string[]>>;
  /** Command lines without the leading `roce`, each with its purpose. */
  examples: readonly (readonly [line: string, what: string])[];
  /** Options after the first argument belong to that: `roce run PROGRAM --option`. */
  passThrough?: boolean;
  /** It opens devices: it has the option `--metrics`. */
  opensDevices?: boolean;
  load: () => Promise<{ run: Action }>;
}

/** Shells that there is completion for. */
export const SHELLS = ['bash', 'zsh', 'fish'] as const;

export const nameOf = (command: CommandSpec): string => command.usage.split(' ')[0];

/** The option `--json`. */
export const json = (what: string): OptionSpec => ({ flags: '--json', summary: what });
