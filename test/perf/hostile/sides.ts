/** A side of @node-roce/perf against a stranger, and the outcome. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { callPerf, type PerfOptions, type PerfResult, servePerf } from '@node-roce/perf';
import type { Device } from '@node-roce/verbs-api';
import type { Dialogue } from './recorded.ts';

/** Files are tested at once, each in a process with addresses of its own. */
const WORKER = Number(process.env.VITEST_POOL_ID ?? 0) % 256;

/** Addresses of perf's device and of a peer's, for calls at once: 0 … 254. */
export const oursAt = (index = 0) => `127.25.${WORKER}.${index + 1}`;
export const theirsAt = (index = 0) => `127.26.${WORKER}.${index + 1}`;
export const [OURS, THEIRS] = [oursAt(), theirsAt()];

export interface Outcome {
  result?: PerfResult;
  error?: Error & { code?: string };
  /** From the attack's start to the end of the call. */
  ms: number;
}

/** A test that a server of ours can play to its end without the client's data. */
export const IDLE: PerfOptions = { verb: 'read', measure: 'lat', size: 64, iters: 5 };

/** Seconds. */
export const TIMEOUT = 0.4;
/** Within this every call has to end, ms: far more than the timeout, for a machine that has other work. */
export const BOUND = 120_000;

/** The outcome of a call that began at `started` (performance.now()). */
export async function settled(call: Promise<PerfResult>, started: number): Promise<Outcome> {
  try {
    const result = await call;
    return { result, ms: performance.now() - started };
  } catch (error) {
    return { error: error as Error, ms: performance.now() - started };
  }
}

/** Serves one test; the attack gets the port. */
export async function served(
  attack: (port: number) => Promise<unknown> | unknown,
  options: PerfOptions = IDLE,
  { index, ...more }: { timeout?: number; port?: number; index?: number; device?: Device } = {},
): Promise<Outcome> {
  const address = oursAt(index);
  let listening: (port: number) => void = () => {};
  const port = new Promise<number>((resolve) => {
    listening = resolve;
  });
  const side = {
    port: 0,
    host: OURS,
    address: () => address,
    timeout: TIMEOUT,
    ...more,
    onListening: listening,
  };
  const call = servePerf(options, side);
  // A server that ends before it listens has an error that the caller looks at.
  call.catch(() => {});
  const at = await Promise.race([port, call.then(() => 0)]);
  const started = performance.now();
  const attacked = Promise.resolve(attack(at)).catch(() => {});
  const outcome = await settled(call, started);
  await attacked;
  return outcome;
}

/** Calls a server that misbehaves on its first connection. */
export async function called(
  attack: (socket: Socket) => Promise<unknown> | unknown,
  options: PerfOptions = IDLE,
  { index, ...more }: { timeout?: number; version?: '6.24' | '6.29'; index?: number; device?: Device } = {},
): Promise<Outcome> {
  const server = createServer();
  server.listen(0, THEIRS);
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  let attacked: Promise<unknown> = Promise.resolve();
  const sockets: Socket[] = [];
  server.on('connection', (socket) => {
    sockets.push(socket);
    socket.on('error', () => {});
    attacked = Promise.resolve(attack(socket)).catch(() => {});
  });
  const started = performance.now();
  const side = { port, host: THEIRS, address: oursAt(index), timeout: TIMEOUT, ...more };
  const outcome = await settled(callPerf(options, side), started);
  await attacked;
  for (const socket of sockets) socket.destroy();
  server.close();
  await once(server, 'close');
  return outcome;
}

/** Connects; the socket's errors are expected. */
export async function dialed(port: number): Promise<Socket> {
  const socket = connect({ host: OURS, port });
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

/** Resolves when the other side has closed, or `ms` later. */
export async function closed(socket: Socket, ms = BOUND): Promise<void> {
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), ms);
  if (!socket.closed) await once(socket, 'close').catch(() => {});
  clearTimeout(timer);
}

/** ms that a spoiled dialogue waits for an answer before it goes on without: the first time, and then. */
const [UNANSWERED, IGNORED] = [30, 3];

/**
 * Sends a client's messages, each after the answer to the one before, and ends.
 *
 * @param write how a message is written; @param resets end by RST in place of FIN
 */
export async function say(
  socket: Socket,
  { messages, answers }: Dialogue,
  write: (message: Buffer, index: number) => unknown = (message) => socket.write(message),
  resets = false,
): Promise<void> {
  let heard = 0;
  let wake = () => {};
  socket.on('data', (data) => {
    heard += data.length;
    wake();
  });
  socket.on('close', () => wake());
  let patience = messages.length === answers.length ? BOUND : UNANSWERED;
  for (const [i, message] of messages.entries()) {
    if (socket.destroyed) break;
    if (message.length > 0) await write(message, i);
    const wanted = answers[Math.min(i, answers.length - 1)];
    if (heard >= wanted) continue;
    await new Promise<void>((resolve) => {
      const goOn = () => {
        patience = Math.min(patience, IGNORED);
        resolve();
      };
      const timer = setTimeout(goOn, patience);
      wake = () => {
        if (heard < wanted && !socket.destroyed) return;
        clearTimeout(timer);
        resolve();
      };
    });
  }
  if (resets) socket.resetAndDestroy();
  else socket.end();
  await closed(socket);
}
