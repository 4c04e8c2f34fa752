/** Completion for bash, 4.4 and later; bash-completion is not needed. */
import { HELP_OPTION, VERSION_OPTION } from '../about.ts';
import { type CommandOutline, type OptionOutline, optionOf, type Values } from './outline.ts';

/** A word in single quotes. */
const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
const words = (list: readonly string[]) => `_roce_words ${quoted(list.join(' '))}`;

/** The bash command that completes such values. */
function completing({ kind, choices }: Values): string {
  switch (kind) {
    case 'choices':
      return words(choices);
    case 'some':
      return `_roce_list ${quoted(choices.join(' '))}`;
    case 'file':
      return '_roce_files';
    case 'interface':
      return '_roce_interfaces';
    case 'command':
      return '_roce_programs';
    case 'text':
      return ':';
  }
}

/** The script. */
export function bashCompletion(commands: readonly CommandOutline[]): string {
  const names = [...commands.map(({ name }) => name), 'help'];
  const own = [HELP_OPTION, VERSION_OPTION].flatMap((option) => optionOf(option).names);
  return `# Completion of roce for bash: source <(roce completion bash)
_roce_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
_roce_files() { compopt -o filenames 2> /dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); }
_roce_programs() { compopt -o filenames 2> /dev/null; mapfile -t COMPREPLY < <(compgen -c -f -- "$cur"); }
_roce_interfaces() { _roce_words "$(ls /sys/class/net 2> /dev/null)"; }
_roce_list() {
  local before=
  case $cur in *,*) before=\${cur%,*}, ;; esac
  mapfile -t COMPREPLY < <(compgen -P "$before" -W "$1" -- "\${cur##*,}")
}
_roce() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD - 1]} command= position=0 i word
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=\${COMP_WORDS[i]}
    if [[ $command = '' ]]; then
      [[ $word = -* ]] || command=$word
    elif [[ $word = -* ]]; then
      _roce_takes_value "$command" "$word" && ((i++))
    else
      ((position++))
    fi
  done
  case $command in
    '') ${words([...names, ...own])} ;;
    help) ${words(commands.map(({ name }) => name))} ;;
${commands.map(commandCase).join('\n')}
  esac
}
_roce_takes_value() {
  case "$1 $2" in
${commands.flatMap(({ name, options }) => valueCases(name, options)).join('\n')}
    *) return 1 ;;
  esac
}
complete -F _roce roce
`;
}

const takers = (options: readonly OptionOutline[]) => options.filter(({ value }) => value !== undefined);

function valueCases(name: string, options: readonly OptionOutline[]): string[] {
  const patterns = takers(options).flatMap(({ names }) => names.map((flag) => quoted(`${name} ${flag}`)));
  return patterns.length === 0 ? [] : [`    ${patterns.join(' | ')}) return 0 ;;`];
}

function commandCase({ name, options, arguments: args }: CommandOutline): string {
  const last = args.at(-1);
  const places = args.map(
    ({ values }, i) => `        ${last?.rest && i === args.length - 1 ? '*' : i}) ${completing(values)} ;;`,
  );
  return `    ${name})
      case $prev in
${takers(options)
  .map(({ names, values }) => `        ${names.join(' | ')}) ${completing(values)}; return ;;`)
  .join('\n')}
      esac
      if [[ $cur = -* ]]; then
        ${words(options.flatMap(({ names }) => names))}
        return
      fi
      case $position in
${places.join('\n')}
      esac ;;`;
}
