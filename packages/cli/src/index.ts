/** The `roce` command as a function, for programs that run it in their own process. */
export { ExitCode } from './about.ts';
export { run } from './cli.ts';
export type { Streams } from './terminal.ts';
