/** The declarations of the commands as plain data: names, options, arguments, and the values that each takes. */
import { HELP_OPTION } from '../about.ts';
import type { OptionSpec } from '../options.ts';
import { metrics } from '../specs/shared.ts';
import { type CommandSpec, nameOf } from '../specs/spec.ts';

/** Values of an option or argument: one of `choices` (`some`: separated by commas), a file, an interface, or any text. */
export interface Values {
  kind: 'choices' | 'some' | 'file' | 'interface' | 'command' | 'text';
  choices: readonly string[];
}

/** An option: `names` has its short and long form. */
export interface OptionOutline {
  names: readonly string[];
  /** The placeholder of its value; undefined for a switch. */
  value: string | undefined;
  values: Values;
  summary: string;
  fallback: string | undefined;
  required: boolean;
}

interface ArgumentOutline {
  name: string;
  required: boolean;
  /** It takes all words that are left. */
  rest: boolean;
  values: Values;
}

export interface CommandOutline {
  name: string;
  summary: string;
  description: string;
  arguments: readonly ArgumentOutline[];
  /** Without hidden ones; `--help` is the last. */
  options: readonly OptionOutline[];
  examples: CommandSpec['examples'];
}

/** The outline of a command. */
export function outlineOf(spec: CommandSpec): CommandOutline {
  const [, ...words] = spec.usage.split(' ');
  const declared = [...spec.options, ...(spec.opensDevices ? [metrics] : []), HELP_OPTION];
  return {
    name: nameOf(spec),
    summary: spec.summary,
    description: spec.description,
    arguments: words.map((word) => argumentOf(word, spec.choices ?? {})),
    options: declared.filter((option: OptionSpec) => !option.hidden).map(optionOf),
    examples: spec.examples,
  };
}

/** The outline of an option. */
export function optionOf({ flags, summary, parse, fallback, required }: OptionSpec): OptionOutline {
  const [, names = '', value] = /^([^<]*?)(?: <(.*)>)?$/.exec(flags)!;
  return {
    names: names.split(', '),
    value,
    values: value === undefined ? valuesOf('', undefined) : valuesOf(`${flags}`, parse?.values, parse?.some),
    summary,
    fallback: fallback === undefined ? undefined : String(fallback),
    required: required === true,
  };
}

function argumentOf(word: string, choices: Readonly<Record<string, readonly string[]>>): ArgumentOutline {
  const [, bracket, name = '', dots] = /^([<[])(.*?)(\.\.\.)?[\]>]$/.exec(word)!;
  return { name, required: bracket === '<', rest: dots !== undefined, values: valuesOf(name, choices[name]) };
}

/** Values as they were declared, or else by the name that the help has for them. */
function valuesOf(name: string, choices: readonly string[] | undefined, some = false): Values {
  if (choices !== undefined) return { kind: some ? 'some' : 'choices', choices };
  if (/\b(files?|path|a|b)\b/.test(name)) return { kind: 'file', choices: [] };
  if (/\binterface\b/.test(name)) return { kind: 'interface', choices: [] };
  return { kind: /^(program|command)$/.test(name) ? 'command' : 'text', choices: [] };
}
