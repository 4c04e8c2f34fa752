/** The `roce` command: chooses the command, prints its error, and sets the exit code. */
import { Command, CommanderError } from 'commander';
import { DESCRIPTION, EXIT_CODES, ExitCode, HELP_COMMAND, HELP_OPTION, VERSION_OPTION } from './about.ts';
import { type CommandSpec, commands } from './commands.ts';
import { declare, UsageError, withNewNames } from './options.ts';
import { metrics as metricsOption } from './specs/shared.ts';
import { type Streams, Terminal } from './terminal.ts';
import { version } from './version.ts';
import { wrap } from './wrap.ts';

/**
 * Runs `roce` with the given arguments (without node and script).
 * Resolves to the exit code; never rejects.
 */
export async function run(argv: readonly string[], streams: Streams): Promise<number> {
  const terminal = new Terminal(streams);
  let code: number = ExitCode.OK;
  try {
    const program = createProgram(terminal, (result) => {
      code = result;
    });
    refuseHelpOfUnknown(program, argv);
    await program.parseAsync(argv, { from: 'user' });
  } catch (error) {
    code = report(error, terminal);
  }
  terminal.flush();
  return code;
}

/** Refuses `roce help WORD` where the word is no command: commander prints the help of all of them, without a reason. */
function refuseHelpOfUnknown(program: Command, [word, name]: readonly string[]): void {
  if (word !== 'help' || name === undefined || name.startsWith('-') || name === 'help') return;
  if (!program.commands.some((command) => command.name() === name))
    program.error(`error: unknown command '${name}'`);
}

const EXIT_TEXT = `Exit codes: ${EXIT_CODES.map(([code, meaning]) => `${code} ${meaning}`).join(', ')}.`;

/** A command in the list of commands: without `[options]`, which all have, so that summaries have room. */
const subcommandTerm = (command: Command): string =>
  [
    command.name(),
    ...command.registeredArguments.map((a) => (a.required ? `<${a.name()}>` : `[${a.name()}]`)),
  ].join(' ');

/** The parser of the command line; an action hands its exit code to `done`. */
function createProgram(terminal: Terminal, done: (code: number) => void): Command {
  const { bold } = terminal.colors;
  const program = new Command('roce')
    .description(DESCRIPTION)
    .version(version(), VERSION_OPTION.flags, VERSION_OPTION.summary)
    .helpOption(HELP_OPTION.flags, HELP_OPTION.summary)
    .helpCommand(HELP_COMMAND.usage, HELP_COMMAND.summary)
    .showHelpAfterError("Try 'roce --help'.")
    .enablePositionalOptions()
    .exitOverride()
    .configureHelp({ styleTitle: (title) => bold(title), minWidthToWrap: 20, subcommandTerm })
    .configureOutput({
      writeOut: (text) => terminal.line(text.trimEnd()),
      writeErr: (text) => terminal.message(text.trimEnd()),
      getOutHelpWidth: () => terminal.columns,
      getErrHelpWidth: () => terminal.columns,
      getOutHasColors: () => terminal.colors.isColorSupported,
      getErrHasColors: () => terminal.errColors.isColorSupported,
      outputError: (text, write) =>
        write(
          text
            .replace(/^error:/, terminal.errColors.red('roce:'))
            .replace(/\n\(Did you mean (.*)\?\)/s, '; did you mean $1?'),
        ),
    });
  for (const spec of commands) addCommand(program, spec, terminal, done);
  program.addHelpText('after', `\n${wrap('', EXIT_TEXT, terminal.columns)}`);
  return program;
}

function addCommand(
  program: Command,
  spec: CommandSpec,
  terminal: Terminal,
  done: (code: number) => void,
): void {
  const command = program.command(spec.usage).summary(spec.summary).description(spec.description);
  command.showHelpAfterError(`Try 'roce ${command.name()} --help'.`);
  if (spec.passThrough) command.passThroughOptions();
  for (const option of spec.options) declare(command, option);
  if (spec.opensDevices) declare(command, metricsOption);
  const examples = spec.examples.map(
    ([line, what]) => `${wrap('  ', `${what}:`, terminal.columns)}\n    roce ${line}`,
  );
  command.addHelpText('after', `\n${terminal.colors.bold('Examples:')}\n${examples.join('\n')}`);
  command.action(async () => {
    const { run: action } = await spec.load();
    try {
      const { metrics, ...given } = command.opts();
      const options = withNewNames(given, spec.options, (text) => terminal.message(`warning: ${text}`));
      await using _ = metrics === undefined ? undefined : await serve(metrics, terminal);
      done(await action(command.args, options, terminal));
    } catch (error) {
      if (error instanceof UsageError) command.error(`error: ${error.message}`);
      throw error;
    }
  });
}

/** Serves metrics; loaded when it is asked for, since it needs what opens devices. */
async function serve(port: number, terminal: Terminal): Promise<AsyncDisposable> {
  const { serveMetrics } = await import('./metrics.ts');
  return serveMetrics(port, terminal);
}

/** Prints the error, unless the parser has, and returns the exit code. */
function report(error: unknown, terminal: Terminal): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? ExitCode.OK : ExitCode.USAGE;
  if (terminal.signal.aborted) {
    terminal.message('interrupted');
    return ExitCode.INTERRUPTED;
  }
  terminal.message(`${terminal.errColors.red('roce:')} ${describe(error as NodeJS.ErrnoException)}`);
  return ExitCode.FAILED;
}

/** Errors with a code come from input or from the machine's state. One without is a bug: its stack is shown. */
function describe(error: NodeJS.ErrnoException & { hostname?: string }): string {
  const { code, message, stack, path, hostname } = error;
  if (code === undefined) return stack ?? String(error);
  // The remedy is for programs; a command line has another one.
  if (code === 'ERR_ROCE_PORT_IN_USE')
    return message.replace(
      'open the address with shared: true in both, or use another one',
      message.includes('roce demo') ? 'or use another address' : 'or use another address (--bind)',
    );
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN')
    return `${hostname}: cannot find the address of this host`;
  // Node's text: "ENOENT: no such file or directory, open 'x'".
  return path === undefined ? message : message.replace(/^\w+: (.*), \w+ '.*'$/s, `${path}: $1`);
}
