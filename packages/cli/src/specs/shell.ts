/** The command for shells. */
import { type CommandSpec, SHELLS } from './spec.ts';

/** The command `completion`; `commands` returns all of them, itself included. */
export const completionCommand = (commands: () => readonly CommandSpec[]): CommandSpec => ({
  usage: 'completion <shell>',
  summary: 'Print a script that completes roce command lines in bash, zsh or fish',
  description:
    'Prints a script that completes commands, options, and their values, files and interfaces. Source the script in the start file of the shell.',
  options: [],
  choices: { shell: SHELLS },
  examples: [
    ['completion bash >> ~/.bash_completion', 'Install it for bash'],
    ['completion zsh > ~/.zfunc/_roce', 'Install it for zsh, with ~/.zfunc in fpath before compinit'],
    ['completion fish > ~/.config/fish/completions/roce.fish', 'Install it for fish'],
  ],
  load: async () => {
    const { printCompletion } = await import('../commands/completion.ts');
    return { run: async (args, _options, terminal) => printCompletion(args, commands(), terminal) };
  },
});
