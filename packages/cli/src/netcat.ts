/** Bytes of stdin and stdout through a socket, with progress on a terminal: `roce listen` and `roce connect`. */
import { finished, pipeline } from 'node:stream/promises';
import type { RSocket } from '@node-roce/rsocket';
import type { Terminal } from './terminal.ts';

const INTERVAL_MS = 500;

export interface NetcatOptions {
  /** False: stdin is not read. */
  input: boolean;
  verbose?: boolean;
}

const amount = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`;
const rate = (bytes: number, milliseconds: number): string =>
  `${(bytes / 1000 / Math.max(1, milliseconds)).toFixed(1)} MB/s`;

/** Resolves when both directions have ended. */
export async function exchange(
  socket: RSocket,
  { input, verbose }: NetcatOptions,
  terminal: Terminal,
): Promise<void> {
  const peer = `${socket.remoteAddress} port ${socket.remotePort}`;
  if (verbose) terminal.message(`connected to ${peer}`);
  const began = performance.now();
  let last = { sent: 0, received: 0 };
  const showing = setInterval(() => {
    const now = { sent: socket.bytesWritten - socket.writableLength, received: socket.bytesRead };
    const line = `sent ${amount(now.sent)} (${rate(now.sent - last.sent, INTERVAL_MS)}), received ${amount(now.received)} (${rate(now.received - last.received, INTERVAL_MS)})`;
    terminal.progress(line);
    last = now;
  }, INTERVAL_MS);
  const isKeyboard = (terminal.stdin as { isTTY?: boolean }).isTTY === true;
  try {
    const closed = finished(socket);
    const receiving = pipeline(socket, terminal.binary(), { end: true });
    if (input) {
      // Nobody types for a peer that has ended.
      if (isKeyboard) socket.once('end', () => socket.end());
      // The peer must not take a part for the whole.
      terminal.stdin.once('error', (error) => socket.destroy(error));
      terminal.stdin.pipe(socket);
    } else socket.end();
    await Promise.all([receiving.catch(() => closed), closed]);
  } finally {
    clearInterval(showing);
    terminal.stdin.unpipe(socket);
    terminal.stdin.pause();
  }
  const took = performance.now() - began;
  const { bytesWritten, bytesRead } = socket;
  if (verbose)
    terminal.message(
      `sent ${bytesWritten} bytes, received ${bytesRead} bytes in ${(took / 1000).toFixed(2)} s (${rate(bytesWritten + bytesRead, took)})`,
    );
}
