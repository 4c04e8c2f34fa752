/** Both ends of a test in this process, on a network in memory; the dialogue runs over TCP on loopback, or on that network. */
import { MemoryNetwork } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import {
  type CallOptions,
  callPerf,
  type PerfOptions,
  type PerfResult,
  type SideOptions,
  servePerf,
} from '../src/index.ts';

const ADDRESSES = { server: '10.0.0.1', client: '10.0.0.2' } as const;

/** Plays one test; `rate` is that of the network, bits per second. Fails unless both sides succeed. */
export async function playBoth(
  test: PerfOptions,
  { rate, ...side }: Partial<SideOptions & CallOptions> & { rate?: number } = {},
  serverTest: PerfOptions = test,
  serverSide: Partial<SideOptions> = {},
): Promise<{ server: PerfResult; client: PerfResult }> {
  const network = new MemoryNetwork();
  const faults = rate === undefined ? {} : { faults: { rate } };
  await using a = await openDevice({ link: network.link(ADDRESSES.server, 4096), ...faults });
  await using b = await openDevice({ link: network.link(ADDRESSES.client, 4096), ...faults });
  const { version, ...common } = side;
  const stop = new AbortController();
  let listens: (port: number) => void;
  const listening = new Promise<number>((resolve) => {
    listens = resolve;
  });
  const limits = { timeout: 120, signal: stop.signal, ...common };
  const serving = servePerf(serverTest, {
    ...limits,
    ...serverSide,
    port: 0,
    device: a,
    host: '127.0.0.1',
    onListening: (at) => listens(at),
  });
  serving.catch(() => listens(0));
  const host = side.rdmaCm ? ADDRESSES.server : '127.0.0.1';
  const calling = listening.then((at) =>
    callPerf(test, { ...limits, port: at, device: b, host, ...(version ? { version } : {}) }),
  );
  const [server, client] = await Promise.allSettled([serving, calling]);
  if (server.status === 'rejected') throw server.reason;
  if (client.status === 'rejected') throw client.reason;
  return { server: server.value, client: client.value };
}
