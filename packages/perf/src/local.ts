/** Both ends of a test on this machine: the client in this thread, the server in another. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { RoceError } from '@node-roce/verbs-api';
import { bounded } from './channel/cm.ts';
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
  planOf(test, options); // Errors of the other thread arrive without their attribute.
  const { addresses = LOOPBACK, ...ours } = options;
  // A callback and a signal stay in this thread.
  const { signal, onProgress: _onProgress, ...theirs } = ours;
  const start: LocalServerStart = { test, side: { ...theirs, address: addresses[1] } };
  const worker = new Worker(new URL('./local-server.js', import.meta.url), {
    workerData: start,
    execArgv: [],
  });
  const ended = once(worker, 'exit', { signal }).then(
    () => {},
    () => {},
  );
  try {
    const [told] = (await once(worker, 'message', { signal })) as [LocalServerMessage];
    if ('error' in told) throw failure(told);
    let problem: (Error & { code?: string }) | undefined;
    worker.on('message', (message: LocalServerMessage) => {
      if ('error' in message) problem = failure(message);
    });
    const side = { ...ours, host: '127.0.0.1', port: told.port, address: addresses[0] };
    const result = await callPerf(test, side).catch(async (error) => {
      if (weight(error) < SYMPTOMS.length) await bounded(ended, SERVER_ENDS_WITHIN);
      throw problem && weight(problem) > weight(error) ? problem : error;
    });
    await ended;
    signal?.throwIfAborted();
    if (problem !== undefined) throw problem;
    return result;
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  } finally {
    await worker.terminate();
  }
}

/** ms that a server may take to report its error: it closes its device before. */
const SERVER_ENDS_WITHIN = 1000;

/** Errors of a side whose peer is gone or silent: the peer may know the cause. In ascending order of weight. */
const SYMPTOMS = ['ERR_ROCE_EXCHANGE', 'ERR_ROCE_TIMEOUT'];

/** Of two sides that failed, the one whose error weighs more failed first. */
function weight({ code }: { code?: string }): number {
  const at = SYMPTOMS.indexOf(code ?? '');
  return at < 0 ? SYMPTOMS.length : at;
}

function failure({ error, code }: { error: string; code: string | undefined }): Error {
  const message = `the server: ${error}`;
  return code === undefined ? new Error(message) : new RoceError(code, message, { errno: 'EIO' });
}
