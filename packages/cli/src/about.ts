/** Texts about the command as a whole: its help, its man page and its completion read them. */

export const DESCRIPTION =
  'RoCEv2 in software: exchange data with RDMA programs and devices, explain RoCE captures.';

/** Options of `roce` itself: what commander takes, and the text. */
export const VERSION_OPTION = { flags: '-V, --version', summary: 'Print the version' } as const;
export const HELP_OPTION = { flags: '-h, --help', summary: 'Print this help' } as const;
export const HELP_COMMAND = { usage: 'help [command]', summary: 'Print the help of a command' } as const;

/** Exit codes of the process. */
export const ExitCode = {
  OK: 0,
  /** The command ran, and failed or found something wrong. */
  FAILED: 1,
  /** The command line is wrong. */
  USAGE: 2,
  /** Ended by Ctrl-C: 128 + SIGINT, as shells have it. */
  INTERRUPTED: 130,
} as const;

export const EXIT_CODES: readonly (readonly [code: number, meaning: string])[] = [
  [ExitCode.OK, 'success'],
  [ExitCode.FAILED, 'the command ran and failed'],
  [ExitCode.USAGE, 'wrong usage'],
  [ExitCode.INTERRUPTED, 'interrupted'],
];
