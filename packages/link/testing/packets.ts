/** Batches of plain packets for the tests of links. */
import {
  Fragment,
  RegionTable,
  RX_SLOT_WORDS,
  Rx,
  RxBatch,
  TX_HEADER_STRIDE,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
} from '@node-roce/transport';
import type { Link } from '../src/link.ts';

export interface PacketOptions {
  trafficClass?: number;
  sourcePort?: number;
  /** Bytes of each packet that go into the header slab; the rest is a fragment. */
  headerLength?: number;
}

/** A batch of packets to one peer, given from their first byte through the pad. */
export function batchOf(peer: number, packets: readonly Uint8Array[], options: PacketOptions = {}): TxBatch {
  const { trafficClass = 0, sourcePort = 0xc000, headerLength = 12 } = options;
  const regions = new RegionTable();
  const batch = new TxBatch(regions, Math.max(64, packets.length));
  packets.forEach((bytes, i) => {
    const header = Math.min(headerLength, bytes.length);
    const region = regions.add(bytes);
    batch.headers.set(bytes.subarray(0, header), i * TX_HEADER_STRIDE);
    const w = i * TX_SLOT_WORDS;
    batch.slots[w + Tx.HEADER_OFFSET] = i * TX_HEADER_STRIDE;
    batch.slots[w + Tx.HEADER_LENGTH] = header;
    batch.slots[w + Tx.FRAGMENT_FIRST] = i;
    batch.slots[w + Tx.FRAGMENT_COUNT] = 1;
    batch.slots[w + Tx.PAYLOAD_LENGTH] = bytes.length - header;
    batch.slots[w + Tx.PEER] = peer;
    batch.slots[w + Tx.TRAFFIC_CLASS] = trafficClass;
    batch.slots[w + Tx.SOURCE_PORT] = sourcePort;
    batch.fragments.set([region, header, 0, bytes.length - header], i * Object.keys(Fragment).length);
  });
  batch.count = packets.length;
  batch.fragmentCount = packets.length;
  return batch;
}

/** Sends them; returns the statuses. */
export function sendPackets(
  link: Link,
  peer: number,
  packets: readonly Uint8Array[],
  options?: PacketOptions,
): number[] {
  const batch = batchOf(peer, packets, options);
  for (let from = 0; from < batch.count; ) from = link.send(batch, from);
  return packets.map((_, i) => batch.slots[i * TX_SLOT_WORDS + Tx.STATUS]);
}

/** The packets of a batch, as plain values. */
export function packetsOf(
  batch: RxBatch,
): { payload: number[]; verdict: number; id: number; local: number; source: string }[] {
  return Array.from({ length: batch.count }, (_, i) => {
    const w = i * RX_SLOT_WORDS;
    const start = batch.slots[w + Rx.OFFSET];
    return {
      payload: [...batch.slab.subarray(start, start + batch.slots[w + Rx.LENGTH])],
      verdict: batch.slots[w + Rx.VERDICT],
      id: batch.slots[w + Rx.IP_ID],
      local: batch.slots[w + Rx.LOCAL],
      source: batch.sources.subarray(i * 16, i * 16 + 16).join('.'),
    };
  });
}

/** Receives until there are as many packets. */
export async function receivePackets(link: Link, count: number): Promise<ReturnType<typeof packetsOf>> {
  const rx = new RxBatch();
  const found: ReturnType<typeof packetsOf> = [];
  while (found.length < count) {
    link.receive(rx);
    found.push(...packetsOf(rx));
    await new Promise((resolve) => setImmediate(resolve));
  }
  return found;
}
