/** Both ends of a test on this machine: the client in this thread, the server in another. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { RoceError } from '@node-roce/verbs-api';
import type { LocalServerMessage, LocalServerStart } from './local-server.ts';
import { callPerf, type SideOptions } from './perf.ts';
import { type PerfOptions, planOf } from './plan.ts';
import type { PerfResult } from './report/result.ts';

export interface LocalOptions extends Omit<SideOptions, 'device' | 'port' | 'rdmaCm'> {
  /** Addresses of the client and of the server; 127.0.0.1 and 127.0.0.2. */
  addresses?: readonly [client: string, server: string];
}

const LOOPBACK = ['127.0.0.1', '127.0.0.2'] as const;

/** Plays a test between two devices on loopback; the result is the client's. Rejects as `callPerf`. */
export async function localPerf(test: PerfOptions, options: LocalOptions = {}): Promise<PerfResult> {
  planOf(test); // Errors of the other thread arrive without their attribute.
  const { addresses = LOOPBACK, udpPort, timeout, gigabits = false, ...others } = options;
  const start: LocalServerStart = { test, address: addresses[1], udpPort, timeout, gigabits };
  const worker = new Worker(new URL('./local-server.js', import.meta.url), {
    workerData: start,
    execArgv: [],
  });
  const ended = once(worker, 'exit').catch(() => {});
  try {
    const [told] = (await once(worker, 'message')) as [LocalServerMessage];
    if ('error' in told) throw failure(told);
    let problem: RoceError | undefined;
    worker.on('message', (message: LocalServerMessage) => {
      if ('error' in message) problem = failure(message);
    });
    const shared = { ...(udpPort ? { udpPort } : {}), ...(timeout ? { timeout } : {}), gigabits };
    const side = { ...others, ...shared, host: '127.0.0.1', port: told.port, address: addresses[0] };
    const result = await callPerf(test, side).catch((error) => {
      throw problem ?? error;
    });
    await ended;
    return result;
  } finally {
    await worker.terminate();
  }
}

const failure = ({ error, code }: { error: string; code: string }) =>
  new RoceError(code, `the server: ${error}`, { errno: 'EIO' });
