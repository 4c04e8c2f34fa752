/** A test as server and as client: opens the device and the channel, plays the session, and ends both. */
import { CmId } from '@node-roce/rdmacm';
import { type Device, type LinkOptions, type OpenOptions, openDevice, RoceError } from '@node-roce/verbs-api';
import { gidToIpText } from '@node-roce/wire';
import type { Channel, Patience } from './channel/channel.ts';
import { CmChannel } from './channel/cm.ts';
import { callTcp, type TcpChannel, TcpListener } from './channel/tcp.ts';
import { ClientConnections, type CmConnections, ServerConnections } from './connections.ts';
import type { ClientVersion } from './dialogue/versions.ts';
import { Endings } from './endings.ts';
import { broken } from './errors.ts';
import { checkMtu, type PerfOptions, type Plan, type PlayOptions, planOf, refuse } from './plan.ts';
import type { PerfResult } from './report/result.ts';
import { type PerfProgress, Session } from './session.ts';

/** perftest's port, of TCP and of the connection manager. */
export const PERF_PORT = 18_515;

/** Options of either side, without the test itself. */
export interface SideOptions extends PlayOptions {
  /** Of the dialogue; 18,515. */
  port?: number;
  /** An open device to use, which stays open; else one is opened at `address`. */
  device?: Device;
  /** Where the engine of such a device runs; inline. */
  engine?: 'inline' | 'worker';
  /** The link of such a device, and the mode of `xdp`: as `openDevice` takes them. */
  link?: LinkOptions['link'];
  xdpMode?: OpenOptions['xdpMode'];
  /** How its connections recover from losses, as `openDevice` takes it. */
  recovery?: OpenOptions['recovery'];
  /** UDP port of RoCE; 4791. */
  udpPort?: number;
  /** Seconds of silence after which the peer is given up; 30. A server waits for its client without limit. */
  timeout?: number;
  signal?: AbortSignal;
  /** Report in Gb/s in place of MiB/s. From version 6.28 of the dialogue on both sides need the same. */
  gigabits?: boolean;
  /** Called when a run begins, and then each `progressEvery`; once where this side only answers requests. */
  onProgress?: (progress: PerfProgress) => void;
  /** ms between two calls of `onProgress`; 1000. */
  progressEvery?: number;
}

export interface ServeOptions extends SideOptions {
  /** Address of the dialogue over TCP; all of them. */
  host?: string;
  /** Local RoCE address, or a function that finds it by the address that the client has reached; with `rdmaCm` only the first. */
  address?: string | ((reached: string) => string);
  /** Waits for a client, at this port. */
  onListening?: (port: number) => void;
}

export interface CallOptions extends SideOptions {
  host: string;
  /** Local RoCE address. */
  address?: string;
  /** Version of the dialogue to announce; 6.24, the last before peers compare their options. */
  version?: ClientVersion;
}

const DEFAULT_TIMEOUT = 30;
const DEFAULT_VERSION = '6.24';

/**
 * Waits for a client and plays one test with it. Rejects with RoceError: EINVAL for a test that perftest has not;
 * ERR_ROCE_EXCHANGE where the peer does not keep to the dialogue, ERR_ROCE_TIMEOUT where it is silent, ERR_ROCE_COMPLETION
 * where a request failed. Rejects with the reason of `signal`, and with an error of the system for a TCP port that is in use.
 */
export async function servePerf(options: PerfOptions, side: ServeOptions): Promise<PerfResult> {
  const plan = planOf(options, side);
  await using patience = new SidePatience(side);
  return await (side.rdmaCm ? serveCm(plan, side, patience) : serveTcp(plan, side, patience));
}

/** Plays a test with a server; as `servePerf`. */
export async function callPerf(options: PerfOptions, side: CallOptions): Promise<PerfResult> {
  const plan = planOf(options, side);
  const { host, address, port = PERF_PORT } = side;
  await using patience = new SidePatience(side);
  const device = await patience.open(address);
  const source = addressOf(device);
  if (!side.rdmaCm) {
    const channel = await callTcp(host, port, patience);
    return await play(plan, side, { channel, patience, source, reached: channel.remoteAddress });
  }
  checkMtu(plan, device.query().activeMtu);
  const destination = { host, port, source };
  const channel = await CmChannel.call(device, destination, patience);
  const connections = new ClientConnections(device, patience, destination);
  return await play(plan, side, { channel, patience, source, connections });
}

async function serveTcp(plan: Plan, side: ServeOptions, patience: SidePatience): Promise<PerfResult> {
  const listener = await TcpListener.open(side.port ?? PERF_PORT, side.host, patience.signal);
  let channel: TcpChannel;
  try {
    side.onListening?.(listener.port);
    channel = await listener.accept(patience);
  } finally {
    listener.close();
  }
  try {
    const { address } = side;
    const device = await patience.open(
      typeof address === 'function' ? address(channel.localAddress) : address,
    );
    return await play(plan, side, { channel, patience, source: addressOf(device) });
  } finally {
    await channel.destroy();
  }
}

async function serveCm(plan: Plan, side: ServeOptions, patience: SidePatience): Promise<PerfResult> {
  const { address, port = PERF_PORT } = side;
  if (typeof address === 'function') throw missingAddress();
  const device = await patience.open(address);
  checkMtu(plan, device.query().activeMtu);
  const source = addressOf(device);
  const listener = new CmId({ device });
  try {
    await listener.listen({ address: source, port });
    const at = listener.localAddress?.port ?? port;
    side.onListening?.(at);
    const channel = await CmChannel.accept(listener, patience);
    const connections = new ServerConnections(device, patience, source, at, listener);
    return await play(plan, side, { channel, patience, source, connections });
  } finally {
    await listener.destroy();
  }
}

const missingAddress = () =>
  new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', 'address: missing; without TCP it cannot be found', {
    errno: 'EINVAL',
    attribute: 'address',
    expected: 'a local address',
  });

/** The address that a device was opened at. */
const addressOf = (device: Device): string => device.gids[0].address;

/** The patience of a side, with its device. */
class SidePatience implements Patience, AsyncDisposable {
  readonly timeout: number;
  readonly signal: AbortSignal;
  signs: Patience['signs'];
  readonly #side: SideOptions;
  #device: Device | undefined;

  constructor(side: SideOptions) {
    this.#side = side;
    this.timeout = side.timeout ?? DEFAULT_TIMEOUT;
    if (!(this.timeout > 0)) throw refuse('timeout', `${this.timeout}`, 'seconds above 0');
    this.signal = side.signal ?? new AbortController().signal;
  }

  get device(): Device {
    return this.#device!;
  }

  /** The engine runs in another thread, or may do so: memory has to be shared with it. */
  get shared(): boolean {
    return this.#side.engine === 'worker' || this.#side.device !== undefined;
  }

  async open(address: string | undefined): Promise<Device> {
    const { device, engine = 'inline', udpPort, link, xdpMode, recovery } = this.#side;
    if (device !== undefined) {
      this.#device = device;
      return device;
    }
    if (address === undefined) throw missingAddress();
    this.#device = await openDevice({
      ...{ address, engine },
      ...(udpPort ? { port: udpPort } : {}),
      ...(link ? { link } : {}),
      ...(xdpMode ? { xdpMode } : {}),
      ...(recovery ? { recovery } : {}),
    });
    return this.#device;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#side.device === undefined) await this.#device?.close();
  }
}

interface Meeting {
  channel: Channel;
  patience: SidePatience;
  source: string;
  /** Address at which the server was called. */
  reached?: string;
  connections?: CmConnections;
}

/** A server that opens its device at the client's address can not do so, and ends the dialogue before its first message. */
const atOneAddress = (error: Error, source: string): Error =>
  broken(
    `${error.message}; it was called at ${source}, the address of this side: each side needs its own`,
    error,
  );

async function play(
  plan: Plan,
  side: SideOptions & { version?: ClientVersion },
  { channel, patience, source, reached, connections }: Meeting,
): Promise<PerfResult> {
  const { version = DEFAULT_VERSION, rdmaCm = false, gigabits = false, histogram = false } = side;
  const { onProgress, progressEvery } = side;
  const { device, shared } = patience;
  const session = new Session(
    {
      ...{ device, address: source, channel, patience, shared, histogram },
      options: { version, rdmaCm, gigabits },
      ...(onProgress ? { onProgress } : {}),
      ...(progressEvery === undefined ? {} : { progressEvery }),
      ...(connections ? { connections } : {}),
    },
    plan,
  );
  // Where messages complete receives, both sides know the end of the run, and the dialogue goes on at once; but not after a duration.
  if (!plan.consumesReceives || plan.duration !== undefined) patience.signs = session.signs;
  const endings = new Endings();
  endings.add(() => channel.destroy());
  endings.add(() => session.close());
  endings.add(() => connections?.destroy());
  return endings.after(async () => {
    const before = await device.counters();
    const result = await session.play().catch((error) => {
      throw channel.ended && !session.hasBegun && reached === source ? atOneAddress(error, source) : error;
    });
    await channel.close();
    const after = await device.counters();
    return {
      ...result,
      role: channel.isClient ? 'client' : 'server',
      plan: session.plan,
      mtu: session.agreement.mtu,
      peerVersion: session.agreement.peerVersion,
      ...{ rdmaCm, gigabits, localAddress: source },
      remoteAddress: gidToIpText(session.remotes[0].gid),
      retransmittedPackets: session.retransmittedPackets,
      icrcErrors: after.icrcErrors - before.icrcErrors,
      icrcOutOfWindow: after.icrcOutOfWindow - before.icrcOutOfWindow,
    };
  });
}
