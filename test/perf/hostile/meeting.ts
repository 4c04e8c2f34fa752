/** Perf against perftest's peer (test/perf/perftest-peer), which may spoil its channel. */
import { callPerf, type PerfOptions } from '@node-roce/perf';
// @ts-expect-error: plain JavaScript
import { playTest } from '../perftest-peer/main.mjs';
import { type Outcome, oursAt, served, settled, TIMEOUT, theirsAt } from './sides.ts';

export interface Channel {
  socket: import('node:net').Socket;
  exchange(message: Buffer, length?: number): Promise<Buffer>;
  exchangeKey(key: object): Promise<object>;
}

/** ms that the peer waits for us. */
const PATIENCE = 2000;

/** Options of a meeting; `index` distinguishes those that are played at once. */
export interface Meeting {
  spoil?: (channel: Channel) => Channel;
  /** Of perf, seconds. */
  timeout?: number;
  index?: number;
}

/** Plays a test of perf's in a role, and the peer's in the other. */
export async function meet(
  role: 'server' | 'client',
  ours: PerfOptions,
  peer: object,
  { spoil, timeout = TIMEOUT, index = 0 }: Meeting = {},
): Promise<Outcome> {
  const common = { address: theirsAt(index), patience: PATIENCE, ...(spoil ? { spoil } : {}), ...peer };
  if (role === 'server') {
    const attack = (port: number) => playTest({ ...common, role: 'client', host: oursAt(0), port });
    return served(attack, ours, { timeout, index });
  }
  let onListening: (port: number) => void = () => {};
  const port = new Promise<number>((resolve) => {
    onListening = resolve;
  });
  const played = playTest({ ...common, role: 'server', port: 0, onListening }).catch(() => {});
  const side = {
    ...{ port: await port, host: theirsAt(index), address: oursAt(index) },
    ...{ timeout, version: '6.29' as const },
  };
  const started = performance.now();
  const outcome = await settled(callPerf(ours, side), started);
  await played;
  return outcome;
}
