/** The thread of the server of `localPerf`: it plays one test, and ends. */
import { parentPort, workerData } from 'node:worker_threads';
import { type ServeOptions, servePerf } from './perf.ts';
import type { PerfOptions } from './plan.ts';

/** The start of the thread. */
export interface LocalServerStart {
  test: PerfOptions;
  side: ServeOptions;
}
/** A message of the thread: it listens, or the test has failed. */
export type LocalServerMessage = { port: number } | { error: string; code: string | undefined };

const { test, side } = workerData as LocalServerStart;
const tell = (message: LocalServerMessage) => parentPort?.postMessage(message);

try {
  await servePerf(test, { ...side, port: 0, host: '127.0.0.1', onListening: (port) => tell({ port }) });
} catch (error) {
  const { message, code } = error as NodeJS.ErrnoException;
  tell({ error: message, code });
}
