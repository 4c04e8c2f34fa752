/** Breaks long lines at words. */
import { stripVTControlCharacters } from 'node:util';
import { Help } from 'commander';

const help = new Help();
help.minWidthToWrap = 20;

/**
 * `prefix` and `text` within `width` columns. The following lines are indented as wide as the prefix, or by `indent`.
 * Colours count as nothing; words longer than a line stay whole.
 */
export function wrap(
  prefix: string,
  text: string,
  width: number,
  indent = stripVTControlCharacters(prefix).length,
): string {
  if (!Number.isFinite(width)) return prefix + text;
  return prefix + help.boxWrap(text, width - indent).replaceAll('\n', `\n${' '.repeat(indent)}`);
}
