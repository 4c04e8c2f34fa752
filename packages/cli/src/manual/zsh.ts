/** Completion for zsh, by its own `_arguments`. */
import { HELP_OPTION, VERSION_OPTION } from '../about.ts';
import type { CommandOutline, OptionOutline, Values } from './outline.ts';

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
/** Text within a specification of `_arguments`, where colons and brackets mean something. */
const plain = (text: string) => text.replace(/[\\:[\]]/g, '\\$&');

/** The action of `_arguments` for such values. */
function action({ kind, choices }: Values): string {
  switch (kind) {
    case 'choices':
      return `(${choices.map(plain).join(' ')})`;
    case 'some':
      return `_values -s , value ${choices.join(' ')}`;
    case 'file':
      return '_files';
    case 'interface':
      return '_net_interfaces';
    case 'command':
      return '_command_names -e';
    case 'text':
      return ' ';
  }
}

/** The script: to be sourced, or to be `_roce` in a folder of `fpath`. */
export function zshCompletion(commands: readonly CommandOutline[]): string {
  const list = commands.map(({ name, summary }) => quoted(`${plain(name)}:${summary}`));
  return `#compdef roce
# Completion of roce for zsh: source <(roce completion zsh), or the file _roce in a folder of fpath.
_roce() {
  local curcontext=$curcontext state line
  typeset -A opt_args
  local -a commands=(
    ${[...list, quoted('help:Print the help of a command')].join('\n    ')}
  )
  _arguments -C ${quoted(`(-h --help)-h[${plain(HELP_OPTION.summary)}]`)} ${quoted(`(-h --help)--help[${plain(HELP_OPTION.summary)}]`)} \\
    ${quoted(`--version[${plain(VERSION_OPTION.summary)}]`)} '1: :->command' '*:: :->rest' && return
  case $state in
    command) _describe -t commands command commands ;;
    rest)
      case $line[1] in
        help) _describe -t commands command commands ;;
${commands.map(commandCase).join('\n')}
      esac ;;
  esac
}
if [[ $funcstack[1] = _roce ]]; then _roce "$@"; else compdef _roce roce; fi
`;
}

function commandCase({ name, options, arguments: args }: CommandOutline): string {
  const specs = [
    ...options.flatMap(optionSpecs),
    ...args.map(({ name: argument, required, rest, values }) =>
      rest
        ? "'*:::arguments:_normal'"
        : quoted(`${required ? ':' : '::'}${plain(argument)}:${action(values)}`),
    ),
  ];
  return `        ${name}) _arguments -s \\\n          ${specs.join(' \\\n          ')} ;;`;
}

function optionSpecs({ names, value, values, summary }: OptionOutline): string[] {
  const others = names.length > 1 ? `(${names.join(' ')})` : '';
  const taken = value === undefined ? '' : `:${plain(value)}:${action(values)}`;
  return names.map((flag) => quoted(`${others}${flag}[${plain(summary)}]${taken}`));
}
