/** Two devices on a network in memory, and ids on them. */
import { MemoryNetwork } from '@node-roce/link';
import {
  type Device,
  type OpenOptions,
  openDevice,
  type ProtectionDomain,
  type QueuePairInit,
} from '@node-roce/verbs-api';
import { BTH_BYTES } from '@node-roce/wire';
import { type CmId, connect, type ListenOptions, listen, type MessageConnection } from '../src/index.ts';

export const ADDRESSES = ['10.0.0.1', '10.0.0.2'] as const;

export interface Ends extends AsyncDisposable {
  a: Device;
  b: Device;
  network: MemoryNetwork;
  /** All packets are lost from now on, in both directions. */
  cut(): void;
}

export async function openEnds(mtu = 1024, otherMtu = mtu, options: OpenOptions = {}): Promise<Ends> {
  const network = new MemoryNetwork();
  const a = await openDevice({ ...options, link: network.link(ADDRESSES[0], mtu) });
  const b = await openDevice({ ...options, link: network.link(ADDRESSES[1], otherMtu) });
  return {
    a,
    b,
    network,
    cut: () => {
      network.deliver = () => {};
    },
    async [Symbol.asyncDispose]() {
      await a.close();
      await b.close();
    },
  };
}

/** A queue pair for an id, with a domain and a completion queue of its own. */
export async function equip(id: CmId, init: Partial<QueuePairInit> = {}) {
  const pd: ProtectionDomain = await id.device.allocPd();
  const cq = await id.device.createCq(64);
  const { type: _type, ...rest } = init;
  const qp = await id.createQp(pd, { ...rest, sendCq: cq });
  const mr = await pd.registerMr(new Uint8Array(4096), { access: { remoteRead: true, remoteWrite: true } });
  return { pd, cq, qp, mr };
}

/** The attribute of a management datagram, behind BTH and DETH; undefined for other packets. */
const attributeOf = ({ bytes }: { bytes: Uint8Array }) =>
  bytes[7] === 1 ? bytes[BTH_BYTES + 8 + 17] : undefined;

/** Counts messages of the connection manager by their attribute, and drops one kind. */
export function watch({ network }: Ends, dropped?: number): Map<number, number> {
  const deliver = network.deliver.bind(network);
  const counts = new Map<number, number>();
  network.deliver = (packet, destination) => {
    const attribute = attributeOf(packet);
    if (attribute !== undefined) counts.set(attribute, (counts.get(attribute) ?? 0) + 1);
    if (attribute === undefined || attribute !== dropped) deliver(packet, destination);
  };
  return counts;
}

export const text = (bytes: Uint8Array | undefined) => bytes && new TextDecoder().decode(bytes);

/** A connection between two devices; the options are for both sides. */
export async function pairOf(
  ends: Ends,
  options: Partial<ListenOptions> = {},
): Promise<[client: MessageConnection, server: MessageConnection]> {
  const listener = await listen({ port: 0, ...options, device: ends.b });
  const { port: _port, backlog: _backlog, ...rest } = options;
  const connecting = connect(`10.0.0.2:${listener.port}`, { ...rest, device: ends.a });
  const server = await listener.accept();
  const client = await connecting;
  await listener.close();
  return [client, server];
}
