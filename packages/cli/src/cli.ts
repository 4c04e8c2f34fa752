/** The `roce` command: which command is meant, what went wrong, which exit code says so. */
import { cac } from 'cac';
import { type CommandSpec, commands, nameOf } from './commands.ts';
import { commandHelp, generalHelp } from './help.ts';
import { closest, keyOf, readOptions, STDIN, UsageError } from './options.ts';
import { type Streams, Terminal } from './terminal.ts';
import { version } from './version.ts';

/** What the process ends with. */
export const ExitCode = {
  OK: 0,
  /** The command ran, and failed or found something wrong. */
  FAILED: 1,
  /** The command line is wrong. */
  USAGE: 2,
  /** Ended by Ctrl-C: 128 + SIGINT, as shells have it. */
  INTERRUPTED: 130,
} as const;

/**
 * Runs `roce` with the given arguments (without node and script).
 * Resolves to the exit code; never rejects.
 */
export async function run(argv: readonly string[], streams: Streams): Promise<number> {
  const terminal = new Terminal(streams);
  let code: number;
  try {
    code = await dispatch(argv, terminal);
  } catch (error) {
    code = report(error, terminal);
  }
  terminal.flush();
  return code;
}

async function dispatch(argv: readonly string[], terminal: Terminal): Promise<number> {
  const { command, args, options } = parse(argv);
  if (options.version === true && command === undefined) {
    terminal.line(version());
    return ExitCode.OK;
  }
  if (options.help === true || args[0] === 'help') {
    const asked = command ?? findCommand(args[1]);
    terminal.line(asked === undefined ? generalHelp(version(), terminal) : commandHelp(asked, terminal));
    return ExitCode.OK;
  }
  if (command === undefined) {
    if (args.length > 0) {
      const meant = closest(args[0]!, commands.map(nameOf));
      throw new UsageError(
        `there is no command '${args[0]}'${meant === undefined ? '' : `; did you mean 'roce ${meant}'?`}`,
      );
    }
    terminal.message(generalHelp(version(), terminal));
    return ExitCode.USAGE;
  }
  const values = checked(command, args, options);
  const { run: action } = await command.load();
  return await action(args, values, terminal);
}

interface Parsed {
  command: CommandSpec | undefined;
  args: string[];
  options: Record<string, unknown>;
}

function parse(argv: readonly string[]): Parsed {
  const cli = cac('roce');
  for (const command of commands) {
    const declared = cli.command(command.usage, command.summary);
    for (const option of command.options) declared.option(option.flags, option.summary);
  }
  cli.option('-h, --help', '');
  cli.option('--version', '');
  // cac takes a lone '-' for an option without a name.
  const given = argv.map((arg) => (arg === '-' ? STDIN : arg));
  const { args, options } = cli.parse(['node', 'roce', ...given], { run: false });
  const { '--': rest, ...known } = options as Record<string, unknown> & { '--'?: string[] };
  return {
    command: findCommand(cli.matchedCommand?.name),
    args: [...args, ...(rest ?? [])].map(String),
    options: known,
  };
}

const findCommand = (name: string | undefined) => commands.find((command) => nameOf(command) === name);

/** The values of a command's options. Usage errors name the command, for the hint. */
function checked(command: CommandSpec, args: readonly string[], options: Record<string, unknown>) {
  try {
    checkKnown(command, options);
    checkArguments(command, args);
    return readOptions(command.options, options);
  } catch (error) {
    if (error instanceof UsageError) error.command = nameOf(command);
    throw error;
  }
}

function checkArguments(command: CommandSpec, args: readonly string[]): void {
  const declared = command.usage.split(' ').slice(1);
  const missing = declared[args.length];
  if (missing?.startsWith('<')) throw new UsageError(`${nameOf(command)} needs ${missing}`);
  if (args.length > declared.length) throw new UsageError(`unexpected argument '${args[declared.length]}'`);
}

function checkKnown(command: CommandSpec, options: Record<string, unknown>): void {
  const known = new Set([...command.options.map(keyOf), 'help']);
  const short = new Set(command.options.map((option) => /^-([a-z])\b/.exec(option.flags)?.[1]));
  for (const [key, value] of Object.entries(options)) {
    if (!known.has(key) && !short.has(key)) {
      const typed = key.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
      const meant = closest(
        typed,
        command.options.map((option) => /--([a-z-]+)/.exec(option.flags)![1]!),
      );
      throw new UsageError(
        `${nameOf(command)} has no option ${typed.length > 1 ? '--' : '-'}${typed}` +
          (meant === undefined ? '' : `; did you mean --${meant}?`),
      );
    }
    const spec = command.options.find((option) => keyOf(option) === key);
    if (spec?.parse !== undefined && value === true) throw new UsageError(`--${key} needs a value`);
  }
}

/** Says what went wrong, as briefly as it deserves, and gives the exit code. */
function report(error: unknown, terminal: Terminal): number {
  const bad = terminal.errColors.red('roce:');
  if (error instanceof UsageError) {
    terminal.message(`${bad} ${error.message}`);
    terminal.message(`Try 'roce ${error.command === undefined ? '' : `${error.command} `}--help'.`);
    return ExitCode.USAGE;
  }
  if (terminal.signal.aborted) {
    terminal.message('interrupted');
    return ExitCode.INTERRUPTED;
  }
  const { code, message, stack, path } = error as NodeJS.ErrnoException;
  // Errors with a code are somebody's input or the machine's state; one without is a bug of ours.
  const text = code === undefined ? (stack ?? String(error)) : message;
  // Node says "ENOENT: no such file or directory, open 'x'".
  const short = path === undefined ? text : text.replace(/^\w+: (.*), \w+ '.*'$/s, `${path}: $1`);
  terminal.message(`${bad} ${short}`);
  return ExitCode.FAILED;
}
