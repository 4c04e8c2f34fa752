/** The man page of `roce` (roff, man(7)), from the declarations of the commands. */
import { DESCRIPTION, EXIT_CODES, HELP_COMMAND, HELP_OPTION, VERSION_OPTION } from '../about.ts';
import type { CommandSpec } from '../specs/spec.ts';
import { type CommandOutline, type OptionOutline, optionOf, outlineOf } from './outline.ts';

/**
 * Text for roff: a backslash, and a dot or quote at the start of a line, mean something there, and a hyphen is not a minus. Characters
 * that are not ASCII are written as code points, which every roff knows.
 */
const escaped = (text: string) =>
  text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^([.'])/gm, '\\&$1')
    .replace(/[^\n -~]/gu, codePoint);
const codePoint = (letter: string) =>
  `\\[u${letter.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}]`;
const bold = (text: string) => `\\fB${escaped(text)}\\fR`;
const italic = (text: string) => `\\fI${escaped(text)}\\fR`;

/** The page; `version` stands in its footer. */
export function manPage(specs: readonly CommandSpec[], version: string): string {
  const commands = specs.map(outlineOf);
  return [
    `.TH ROCE 1 "" "node\\-roce ${escaped(version)}" "User Commands"`,
    '.SH NAME',
    `roce \\- ${escaped(DESCRIPTION.replace(/\.$/, ''))}`,
    '.SH SYNOPSIS',
    `.B roce`,
    `${italic('command')} [${italic('options')}] [${italic('arguments')}]`,
    '.SH DESCRIPTION',
    escaped(DESCRIPTION),
    'Data go to standard output, messages to standard error.',
    '.SH OPTIONS',
    ...optionLines(optionOf(HELP_OPTION)),
    ...optionLines(optionOf(VERSION_OPTION)),
    '.SH COMMANDS',
    ...commands.flatMap(commandLines),
    `.SS ${bold('roce help')} [${italic('command')}]`,
    `${escaped(HELP_COMMAND.summary)}.`,
    '.SH EXIT STATUS',
    ...EXIT_CODES.flatMap(([code, meaning]) => ['.TP', bold(`${code}`), `${escaped(meaning)}.`]),
    '.SH ENVIRONMENT',
    '.TP',
    bold('NO_COLOR'),
    'If not empty, there are no colours.',
    '.TP',
    bold('FORCE_COLOR'),
    'If not empty and not 0, there are colours also where the output is no terminal.',
    '.SH SEE ALSO',
    [
      'ibv_rc_pingpong(1)',
      'ibv_devinfo(1)',
      'rping(1)',
      'ib_write_bw(1)',
      'rdma(8)',
      'tcpdump(8)',
      'wireshark(1)',
    ]
      .map((page) => page.replace(/^(.*)\((\d)\)$/, (_, name, section) => `${bold(name)}(${section})`))
      .join(',\n'),
    '',
  ].join('\n');
}

function commandLines(command: CommandOutline): string[] {
  const usage = command.arguments.map(({ name, required, rest }) => {
    const text = `${italic(name)}${rest ? '...' : ''}`;
    return required ? text : `[${text}]`;
  });
  return [
    `.SS ${[bold(`roce ${command.name}`), `[${italic('options')}]`, ...usage].join(' ')}`,
    `${escaped(command.summary)}.`,
    '.PP',
    escaped(command.description),
    ...command.arguments
      .filter(({ values }) => values.choices.length > 0)
      .flatMap(({ name, values }) => ['.TP', italic(name), `One of ${escaped(values.choices.join(', '))}.`]),
    ...command.options.flatMap(optionLines),
    '.PP',
    'Examples:',
    ...command.examples.flatMap(([line, what]) => ['.TP', bold(`roce ${line}`), `${escaped(what)}.`]),
  ];
}

function optionLines({ names, value, values, summary, fallback, required }: OptionOutline): string[] {
  const flags = names.map(bold).join(', ');
  return [
    '.TP',
    value === undefined ? flags : `${flags} ${italic(value)}`,
    `${escaped(summary)}.`,
    ...(values.kind === 'choices' ? [`One of ${escaped(values.choices.join(', '))}.`] : []),
    ...(values.kind === 'some'
      ? [`Some of ${escaped(values.choices.join(', '))}, separated by commas.`]
      : []),
    ...(fallback === undefined ? [] : [`Default: ${escaped(fallback)}.`]),
    ...(required ? ['Required.'] : []),
  ];
}
