/** A memory link whose socket has no room for as long as a test wants, and the packets that arrived at it. */
import type { MemoryNetwork } from '@node-roce/link';
import type { TxBatch } from '@node-roce/transport';
import { openSide, type PairOptions, type Side } from './pair.ts';

export interface Valve {
  /** No room: what is given to the link waits. */
  shut(): void;
  /** Makes room again, and wakes the link's watcher. */
  open(): void;
  /** Packets that arrived. */
  readonly arrived: Uint8Array[];
}

/** A side with a valve between its adapter and the network. */
export async function openValvedSide(
  network: MemoryNetwork,
  address: string,
  options: PairOptions = {},
): Promise<Side & { valve: Valve }> {
  const arrived: Uint8Array[] = [];
  let shut = false;
  let onWake: (() => void) | undefined;
  const valved = {
    link(name: string, mtu: number) {
      const link = network.link(name, mtu);
      const send = link.send.bind(link);
      const arrive = link.arrive.bind(link);
      const watch = link.watch.bind(link);
      return Object.assign(link, {
        send: (batch: TxBatch, from: number) => (shut ? from : send(batch, from)),
        arrive: (packet: Parameters<typeof arrive>[0]) => {
          arrived.push(packet.bytes.slice());
          arrive(packet);
        },
        watch: (wake: () => void) => {
          onWake = wake;
          watch(wake);
        },
        unwatch: () => {
          onWake = undefined;
          Object.getPrototypeOf(link).unwatch.call(link);
        },
      });
    },
  } as unknown as MemoryNetwork;
  const side = await openSide(valved, address, options);
  const valve = {
    arrived,
    shut: () => {
      shut = true;
    },
    open: () => {
      shut = false;
      onWake?.();
    },
  };
  return { ...side, valve };
}
