// Sends 40 packets with the failures that REFUSE asks for, and prints the results; run by refusals.test.ts.
import { layout, Port, Socket } from '../index.js';

const port = Number(process.argv[2]);
const gid = (last) => Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, last);
const COUNT = 40;
const WORDS = layout.TX_SLOT_WORDS;
const from = new Port();
const to = new Port();
from.addLocal(new Socket({ family: 4, address: '127.0.0.1', port }));
to.addLocal(new Socket({ family: 4, address: '127.0.0.2', port, gro: true, receiveBuffer: 1 << 22 }));
const peer = from.addPeer({ address: gid(2), local: 0, port });

const slots = new Uint32Array(COUNT * WORDS);
const headers = new Uint8Array(COUNT * 64);
const fragments = new Uint32Array(COUNT * 4);
const memory = new Uint8Array(8192).map((_, i) => i * 3);
for (let i = 0; i < COUNT; i++) {
  headers[i * 64 + 11] = i;
  slots.set([i * 64, 12, i, 1, i === 20 ? 500 : 1000, 0, peer, 0, 0xc001], i * WORDS);
  fragments.set([0, i, 0, i === 20 ? 500 : 1000], i * 4);
}
// As two runs with a shorter packet between them: the slots behind the first of each are not written.
if (process.env.RUNS === '1') {
  for (const [first, packets] of [
    [0, 20],
    [21, 19],
  ]) {
    slots[first * WORDS + layout.Tx.RUN] = packets;
    slots.fill(0xdead_beef, (first + 1) * WORDS, (first + packets) * WORDS);
  }
}
const slab = new Uint8Array(1 << 21);
const rxSlots = new Uint32Array(2048 * 12);
const sources = new Uint8Array(2048 * 16);
const psns = [];
let bad = 0;
const returned = [];
for (let at = 0; at < COUNT && returned.length < 100; ) {
  at = from.send(slots, headers, fragments, at, COUNT, [memory], new Uint8Array(1));
  returned.push(at);
  for (
    let n = to.receive(slab, rxSlots, sources, 2048);
    n > 0;
    n = to.receive(slab, rxSlots, sources, 2048)
  ) {
    for (let i = 0; i < n; i++) {
      psns.push(slab[rxSlots[i * 12] + 11]);
      if (rxSlots[i * 12 + 6] !== 0) bad++;
    }
  }
}
const status = Array.from({ length: COUNT }, (_, i) => slots[i * WORDS + layout.Tx.STATUS]);
console.log(JSON.stringify({ returned, psns, bad, status, stats: from.stats() }));
process.exit(0);
