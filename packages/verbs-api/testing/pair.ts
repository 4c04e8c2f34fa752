/** Two devices in one process, joined by memory links: the harness of this package's tests. */
import { FaultLink, type FaultOptions, MemoryNetwork } from '@node-roce/link';
import { createRandom } from '@node-roce/wire';
import {
  type CompletionQueue,
  type ConnectOptions,
  type Device,
  type MemoryRegion,
  type OpenOptions,
  openDevice,
  type ProtectionDomain,
  type QueuePair,
  type QueuePairInit,
} from '../src/index.ts';
import { expectFewDuplicates } from './laws.ts';

export interface Side {
  device: Device;
  pd: ProtectionDomain;
  cq: CompletionQueue;
  qp: QueuePair;
  /** 64 KiB that peers may read and write. */
  mr: MemoryRegion;
  memory: Uint8Array;
}

export interface PairOptions {
  faults?: FaultOptions;
  mtu?: number;
  cap?: QueuePairInit['cap'];
  sqSigAll?: boolean;
  /** RC unless given. */
  type?: QueuePairInit['type'];
  cqe?: number;
  device?: Partial<OpenOptions>;
}

export async function openSide(
  network: MemoryNetwork,
  address: string,
  options: PairOptions = {},
): Promise<Side> {
  const plain = network.link(address, options.mtu ?? 1024);
  const link = options.faults ? new FaultLink(plain, options.faults) : plain;
  const device = await openDevice({ ...options.device, link });
  const pd = await device.allocPd();
  const cq = await device.createCq(options.cqe ?? 64);
  const memory = new Uint8Array(65_536);
  const mr = await pd.registerMr(memory, {
    access: { remoteWrite: true, remoteRead: true, remoteAtomic: true },
  });
  const { cap, sqSigAll } = options;
  const qp = await pd.createQp({ type: options.type, sendCq: cq, cap, sqSigAll });
  return { device, pd, cq, qp, mr, memory };
}

export interface Pair extends AsyncDisposable {
  a: Side;
  b: Side;
}

/** Two sides, connected. */
export async function openPair(options: PairOptions = {}, connect: ConnectOptions = {}): Promise<Pair> {
  const network = new MemoryNetwork();
  const a = await openSide(network, '10.0.0.1', options);
  const b = await openSide(network, '10.0.0.2', options);
  await a.qp.connect(b.qp.connectionData(), connect);
  await b.qp.connect(a.qp.connectionData(), connect);
  return {
    a,
    b,
    async [Symbol.asyncDispose]() {
      if (options.faults === undefined && options.device?.faults === undefined) {
        await expectFewDuplicates(...[a.device, b.device].filter(({ closed }) => !closed));
      }
      await a.device.close();
      await b.device.close();
    },
  };
}

/** Bytes that differ from place to place. */
export function pattern(length: number, seed = 1): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  const random = createRandom(seed);
  for (let i = 0; i < length; i++) bytes[i] = random.next();
  return bytes;
}
