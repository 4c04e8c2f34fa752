/** The commands. Each is in `commands/NAME.ts`, loaded when it runs: reading a capture needs no native addon. */
import { adapterCommands } from './specs/adapters.ts';
import { captureCommands } from './specs/captures.ts';
import { conformCommands } from './specs/conform.ts';
import { machineCommands } from './specs/machine.ts';
import { perfCommands } from './specs/perf.ts';
import { programCommands } from './specs/programs.ts';
import { completionCommand } from './specs/shell.ts';
import { socketCommands } from './specs/sockets.ts';
import type { CommandSpec } from './specs/spec.ts';

export type { CommandSpec } from './specs/spec.ts';
export { nameOf } from './specs/spec.ts';

export const commands: readonly CommandSpec[] = [
  ...adapterCommands,
  ...socketCommands,
  ...perfCommands,
  ...conformCommands,
  ...programCommands,
  ...captureCommands,
  ...machineCommands,
  completionCommand(() => commands),
];
