/** Programs that must not outlive the test run. */
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';

/**
 * Starts a program that the kernel ends with the process that started it, however that one ends.
 * `privileges`: further options of setpriv(1).
 */
export function spawnTethered(
  command: string,
  args: readonly string[],
  options: SpawnOptions,
  privileges: readonly string[] = [],
): ChildProcess {
  return spawn('setpriv', ['--pdeathsig', 'KILL', ...privileges, command, ...args], options);
}

/** Ends a process: the signal given, then SIGKILL after `patience` ms. Resolves when it is gone. */
export async function end(
  child: ChildProcess,
  signal: NodeJS.Signals = 'SIGTERM',
  patience = 3000,
): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill(signal);
  const timer = setTimeout(() => child.kill('SIGKILL'), patience);
  await gone;
  clearTimeout(timer);
}
