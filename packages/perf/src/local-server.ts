/** The thread of the server of `localPerf`: it plays one test, and ends. */
import { parentPort, workerData } from 'node:worker_threads';
import { servePerf } from './perf.ts';
import type { PerfOptions } from './plan.ts';

/** The start of the thread. */
export interface LocalServerStart {
  test: PerfOptions;
  address: string;
  udpPort: number | undefined;
  timeout: number | undefined;
  gigabits: boolean;
}
/** A message of the thread: it listens, or the test has failed. */
export type LocalServerMessage = { port: number } | { error: string; code: string };

const { test, address, udpPort, timeout, gigabits } = workerData as LocalServerStart;
const tell = (message: LocalServerMessage) => parentPort?.postMessage(message);

try {
  await servePerf(test, {
    ...{ port: 0, host: '127.0.0.1', address, gigabits },
    ...(udpPort === undefined ? {} : { udpPort }),
    ...(timeout === undefined ? {} : { timeout }),
    onListening: (port) => tell({ port }),
  });
} catch (error) {
  const { message, code = 'ERR_ROCE_EXCHANGE' } = error as NodeJS.ErrnoException;
  tell({ error: message, code });
}
