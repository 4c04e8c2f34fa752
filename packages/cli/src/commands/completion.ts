/** `roce completion`: a script that completes command lines. */
import { bashCompletion } from '../manual/bash.ts';
import { fishCompletion } from '../manual/fish.ts';
import { type CommandOutline, outlineOf } from '../manual/outline.ts';
import { zshCompletion } from '../manual/zsh.ts';
import { UsageError } from '../options.ts';
import { type CommandSpec, SHELLS } from '../specs/spec.ts';
import type { Terminal } from '../terminal.ts';

const SCRIPTS: Record<(typeof SHELLS)[number], (commands: readonly CommandOutline[]) => string> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

export function printCompletion(
  [shell]: readonly string[],
  commands: readonly CommandSpec[],
  terminal: Terminal,
): number {
  const known = SHELLS.find((name) => name === shell);
  if (known === undefined)
    throw new UsageError(`no completion for ${shell}. Expected one of ${SHELLS.join(', ')}.`);
  terminal.line(SCRIPTS[known](commands.map(outlineOf)).trimEnd());
  return 0;
}
