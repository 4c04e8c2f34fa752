/**
 * Round trips by the links alone, both in one thread, with packets that are ready: the system calls as the addon makes them, its ICRCs, and its calls. What the
 * engine and the program add to that is the difference to `RoundTrips` (one-thread.mjs).
 */
import { links, transport, wire } from './build.mjs';

/** Words of a slot, in the order of `Tx`, that both kinds of packets have. */
const QPN = 7;
const SOURCE_PORT = 0xc001;
const PKEY = 0xffff;
const SEND_ONLY = 0x04;
const ACKNOWLEDGE = 0x11;
const BTH_BYTES = 12;
const AETH_BYTES = 4;
/** Index and value in the array of the time: one datagram is enough. */
const ONE = 2;

async function side(address, other, { port, size, acks }) {
  const { openUdpLink } = await links();
  const { RegionTable, RxBatch, TX_HEADER_STRIDE, TX_SLOT_WORDS, TxBatch } = await transport();
  const { gidFromText, writeBth } = await wire();
  const link = await openUdpLink({ address, port });
  const regions = new RegionTable();
  const region = regions.add(new Uint8Array(size));
  const peer = link.add(gidFromText(other), 0, 64);
  const tx = new TxBatch(regions, 128);
  const add = (opcode, headerLength, payload) => {
    const base = tx.count * TX_HEADER_STRIDE;
    const fragments = payload > 0 ? 1 : 0;
    writeBth(tx.headers, base, opcode, 0, PKEY, QPN, 0);
    const words = [base, headerLength, tx.fragmentCount, fragments, payload, 0, peer, 0, SOURCE_PORT, QPN];
    tx.slots.set([...words, 0, 0, 1], tx.count++ * TX_SLOT_WORDS);
    if (fragments > 0) tx.fragments.set([region, 0, 0, payload], 4 * tx.fragmentCount++);
  };
  add(SEND_ONLY, BTH_BYTES, size);
  if (acks) add(ACKNOWLEDGE, BTH_BYTES + AETH_BYTES, 0);
  const time = new Float64Array(new SharedArrayBuffer(16));
  return { link, tx, rx: new RxBatch(undefined, link.slab), time };
}

/** A packet of `size` bytes there and back; with `acks` an ACK behind each, in the same datagram. */
export class LinkTrips {
  #sides;

  static async open({ size, acks = false, port }) {
    const trips = new LinkTrips();
    trips.#sides = [
      await side('127.0.0.1', '127.0.0.2', { port, size, acks }),
      await side('127.0.0.2', '127.0.0.1', { port, size, acks }),
    ];
    return trips;
  }

  #pass(from, to) {
    from.link.send(from.tx, 0, from.time);
    do to.time[1] = ONE;
    while (to.link.receive(to.rx, to.time) === 0);
    if (to.rx.count !== from.tx.count) throw new Error(`${to.rx.count} packets came`);
  }

  /** Nanoseconds of processor time a round trip. */
  run(count) {
    const [a, b] = this.#sides;
    const before = process.cpuUsage();
    for (let i = 0; i < count; i++) {
      this.#pass(a, b);
      this.#pass(b, a);
    }
    const { user, system } = process.cpuUsage(before);
    return ((user + system) * 1000) / count;
  }

  async close() {
    for (const { link } of this.#sides) await link.close();
  }
}
