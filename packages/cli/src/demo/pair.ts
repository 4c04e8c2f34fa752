/** Two adapters of this process on loopback addresses, connected, each with memory open to the other. */
import type { Link } from '@node-roce/link';
import {
  type CompletionQueue,
  completionError,
  type Device,
  type MemoryRegion,
  type OpenOptions,
  openDevice,
  type QueuePair,
  RoceError,
  type SendWr,
} from '@node-roce/verbs-api';

export interface Places {
  a: string;
  b: string;
  udpPort: number;
  link: Exclude<OpenOptions['link'], Link>;
}

export interface Side {
  /** Aborted by Ctrl-C. */
  signal: AbortSignal;
  device: Device;
  cq: CompletionQueue;
  qp: QueuePair;
  bytes: Uint8Array;
  mr: MemoryRegion;
}

export interface Pair extends AsyncDisposable {
  a: Side;
  b: Side;
}

/** Messages outstanding at a time. */
const DEPTH = 8;

/**
 * @param size bytes of memory of each side
 * @param first options of A's device only: a trace, faults
 */
export async function openPair(
  places: Places,
  size: number,
  signal: AbortSignal,
  first: Pick<OpenOptions, 'trace' | 'faults'> = {},
): Promise<Pair> {
  const devices: Device[] = [];
  const close = async () => {
    for (const device of devices) await device.close();
  };
  const side = async (address: string, more: object = {}): Promise<Side> => {
    const device = await openDevice({ address, port: places.udpPort, link: places.link, ...more });
    devices.push(device);
    const pd = await device.allocPd();
    const cq = await device.createCq(64);
    const qp = await pd.createQp({ sendCq: cq });
    const bytes = new Uint8Array(size);
    const mr = await pd.registerMr(bytes, { access: { remoteRead: true, remoteWrite: true } });
    return { signal, device, cq, qp, bytes, mr };
  };
  try {
    const a = await side(places.a, first);
    const b = await side(places.b);
    await a.qp.connect(b.qp.connectionData());
    await b.qp.connect(a.qp.connectionData());
    return { a, b, [Symbol.asyncDispose]: close };
  } catch (error) {
    await close();
    throw advise(error);
  }
}

/** Adds a remedy if the port is taken. */
function advise(error: unknown): unknown {
  if (!(error instanceof RoceError && error.errno === 'EADDRINUSE')) return error;
  return new RoceError(
    error.code,
    `${error.message}; or try other addresses or another port: roce demo --a 127.0.0.3 --b 127.0.0.4, roce demo --udp-port 24791`,
    {
      errno: 'EADDRINUSE',
      cause: error,
    },
  );
}

/** Waits for a completion, which has to be a success. Rejects at Ctrl-C. */
export async function success({ cq, signal }: Side): Promise<void> {
  signal.throwIfAborted();
  const wc = await cq.next({ signal });
  if (!wc.ok) throw completionError(wc);
}

/** Posts a series of requests, `DEPTH` at a time, and waits for all of them. */
export async function series(side: Side, count: number, make: (i: number) => SendWr): Promise<void> {
  let posted = 0;
  for (let done = 0; done < count; done++) {
    while (posted < count && posted - done < DEPTH) side.qp.postSend(make(posted++));
    await success(side);
  }
}
