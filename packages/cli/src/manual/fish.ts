/** Completion for fish. */
import { HELP_COMMAND, HELP_OPTION, VERSION_OPTION } from '../about.ts';
import type { CommandOutline, OptionOutline, Values } from './outline.ts';

const quoted = (text: string) => `'${text.replace(/['\\]/g, '\\$&')}'`;

/** The arguments of `complete` for such values; an option needs a value (`-r`), and without `-F` no file. */
function completing({ kind, choices }: Values): string {
  switch (kind) {
    case 'choices':
    case 'some':
      return `-f -a ${quoted(choices.join(' '))}`;
    case 'file':
      return '-F';
    case 'interface':
      return "-f -a '(command ls /sys/class/net)'";
    case 'command':
      return "-a '(__fish_complete_command)'";
    case 'text':
      return '-f';
  }
}

/** The script. */
export function fishCompletion(commands: readonly CommandOutline[]): string {
  const first = (name: string, summary: string) =>
    `complete -c roce -n __fish_use_subcommand -f -a ${name} -d ${quoted(summary)}`;
  return [
    '# Completion of roce for fish: roce completion fish | source',
    'complete -c roce -f',
    ...commands.map(({ name, summary }) => first(name, summary)),
    first('help', HELP_COMMAND.summary),
    `complete -c roce -n __fish_use_subcommand -s h -l help -d ${quoted(HELP_OPTION.summary)}`,
    `complete -c roce -n __fish_use_subcommand -l version -d ${quoted(VERSION_OPTION.summary)}`,
    `complete -c roce -n '__fish_seen_subcommand_from help' -f -a ${quoted(commands.map(({ name }) => name).join(' '))}`,
    ...commands.flatMap(commandLines),
    '',
  ].join('\n');
}

function commandLines({ name, options, arguments: args }: CommandOutline): string[] {
  const on = `complete -c roce -n ${quoted(`__fish_seen_subcommand_from ${name}`)}`;
  const values = args.filter(({ values: { kind } }) => kind !== 'text');
  return [
    ...options.map((option) => `${on} ${optionArguments(option)}`),
    ...values.map(({ values: of }) => `${on} ${completing(of)}`),
  ];
}

function optionArguments({ names, value, values, summary }: OptionOutline): string {
  const flags = names.map((flag) => (flag.startsWith('--') ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`));
  const taken = value === undefined ? '' : ` -r ${completing(values)}`;
  return `${flags.join(' ')}${taken} -d ${quoted(summary)}`;
}
