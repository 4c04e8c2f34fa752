/** The `roce` command for programs that want to run it in their own process, and the pieces of it that others use. */
export { ExitCode, run } from './cli.ts';
export type { Streams } from './terminal.ts';
