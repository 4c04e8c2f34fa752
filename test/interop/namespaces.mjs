// Programs in namespaces of their own: network, mounts, processes.
import { spawn } from 'node:child_process';

/**
 * Process 1. File descriptor 3 has the names of signals for the program, which cannot be sent from outside of its PID namespace.
 * /sys shows the devices of the network namespace in which it is mounted.
 */
const FIRST = `
  mount -t sysfs sysfs /sys || exit
  exec 4<&0
  "$@" <&4 3<&- 4<&- &
  program=$!
  while read -r -u 3 signal; do kill -s "$signal" "$program"; done &
  wait "$program"`;

/** ms from a signal to SIGKILL. */
const GRACE = 15_000;

/**
 * Starts a program in new namespaces. They end with process 1 of them, and that one ends with this process, however it ends: then neither a
 * namespace nor a process or device in it is left. Signals that ask this process to end go to the program.
 *
 * @returns {{ pid: number, done: Promise<number> }} PID of a process in its network namespace; exit code, not 0 if a signal ended it
 */
export function spawnInNamespaces(command, args, { stdio = 'inherit', ...options } = {}) {
  const standard = Array.isArray(stdio) ? stdio : [stdio, stdio, stdio];
  const child = spawn(
    'setpriv',
    [
      ...[
        '--pdeathsig',
        'KILL',
        'unshare',
        '--net',
        '--mount',
        '--pid',
        '--fork',
        '--kill-child',
        '--mount-proc',
      ],
      ...['bash', '-c', FIRST, 'first', command, ...args],
    ],
    { ...options, stdio: [...standard, 'pipe'] },
  );
  child.stdio[3].on('error', () => {}); // a signal after its end
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.on(signal, () => {
      child.stdio[3].write(`${signal}\n`);
      setTimeout(() => child.kill('SIGKILL'), GRACE).unref();
    });
  }
  return { pid: child.pid, done: new Promise((resolve) => child.on('exit', (code) => resolve(code ?? 1))) };
}
