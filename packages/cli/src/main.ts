/** The `roce` command as a process: streams, signals and the exit code. Everything else is in cli.ts. */
import { run } from './cli.ts';

// A reader that went away (`roce dump FILE | head`) is the end of the work, not an error.
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0);
    throw error;
  });
}

// The first Ctrl-C ends the work in order, the second one at once.
const interrupted = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    if (interrupted.signal.aborted) process.exit(130);
    interrupted.abort(new Error(`ended by ${signal}`));
  });
}

process.exitCode = await run(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  signal: interrupted.signal,
});
// A socket or timer that something left open must not keep a finished command alive; what was
// written to a pipe or file is out already (Node writes those synchronously on Linux).
process.stdout.write('', () => process.exit());
