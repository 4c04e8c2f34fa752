/** The `roce` command as a process: streams, signals and the exit code. Everything else is in cli.ts. */
import { run } from './cli.ts';

/** Ends the command where the reader of its output has gone; a command that has a file to close sets its own way. */
let endUnread = (): void => process.exit(0);

/** Ends the command, because the rest of its output has no place to go. */
function endUnwritten(error: NodeJS.ErrnoException): void {
  // A reader that closed its end (`roce dump FILE | head`) is not an error.
  if (error.code === 'EPIPE') {
    endUnread();
    return;
  }
  process.stderr.write(`roce: standard output cannot be written: ${error.message}\n`);
  process.exit(1);
}

process.stdout.on('error', endUnwritten);
// Messages that cannot be written change nothing about the result.
process.stderr.on('error', () => {});

// The first Ctrl-C ends the command in order, the second at once.
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
  whenUnread: (end) => {
    endUnread = end;
  },
});
// An open socket or timer must not keep a finished command alive. Output to a pipe or file is complete here: Node
// writes those synchronously on Linux.
process.stdout.write('', (error) => {
  // It is called before the stream's error event.
  if (error) endUnwritten(error);
  process.exit();
});
