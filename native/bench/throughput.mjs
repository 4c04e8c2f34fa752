// One-way throughput of the addon between two processes over loopback: headers, sequence check and
// window in JavaScript; ICRC, batches and the copy into memory in the addon.
//
//   node native/bench/throughput.mjs [size=4096] [seconds=2] [window=512] [batch=60] [shared=0] [gso=1]
//     [gro=1] [spin=20] [from=127.0.0.1] [to=127.0.0.2] [port=14700]
//
// Prints one JSON line; `gbps` counts payload. With alone=1 one process sends to itself, in turns, and the
// line has the processor time of a packet from header to memory: on a busy machine that is what can be
// compared.
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { copyBatch, now, Port, Socket } from '../index.js';

const options = {
  size: 4096,
  seconds: 2,
  window: 512,
  batch: 60,
  shared: 0,
  gso: 1,
  gro: 1,
  from: '127.0.0.1',
  to: '127.0.0.2',
  port: 14700,
  alone: 0,
  spin: 20,
};
for (const argument of process.argv.slice(2)) {
  const [key, value] = argument.split('=');
  if (key in options) options[key] = typeof options[key] === 'number' ? Number(value) : value;
}
const MEMORY = 16 << 20;
const MASK = 0xff_ffff;
const ACK = 0x11;

const gid = (address) =>
  Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, ...address.split('.').map(Number));

/** One side: a port with a peer, memory, and batches. */
class Side {
  constructor(local, remote) {
    const { port } = options;
    this.port = new Port({ gso: options.gso === 1, onWake: () => this.wake() });
    this.idle = 0;
    this.port.addLocal(
      new Socket({ family: 4, address: local, port, gro: options.gro === 1, receiveBuffer: 32 << 20 }),
    );
    this.peer = this.port.addPeer({ address: gid(remote), local: 0, port });
    this.memory = new Uint8Array(options.shared ? new SharedArrayBuffer(MEMORY) : MEMORY);
    this.views = [this.memory];
    this.regionShared = Uint8Array.of(options.shared);
    this.headers = new Uint8Array(512 * 64);
    this.slots = new Uint32Array(512 * 12);
    this.fragments = new Uint32Array(512 * 4);
    this.slab = new Uint8Array(2 << 20);
    this.rxSlots = new Uint32Array(2048 * 12);
    this.sources = new Uint8Array(2048 * 16);
    this.copies = new Uint32Array(2048 * 5);
    this.at = 0;
  }

  put(i, opcode, psn, length) {
    const { headers, slots, fragments } = this;
    const h = i * 64;
    headers[h] = opcode;
    headers[h + 9] = psn >> 16;
    headers[h + 10] = psn >> 8;
    headers[h + 11] = psn;
    const s = i * 12;
    slots[s] = h;
    slots[s + 1] = 12;
    slots[s + 2] = i;
    slots[s + 3] = length > 0 ? 1 : 0;
    slots[s + 4] = length;
    slots[s + 5] = -length & 3;
    slots[s + 6] = this.peer;
    slots[s + 8] = 0xc001;
    if (length === 0) return;
    fragments[i * 4 + 1] = this.at;
    fragments[i * 4 + 3] = length;
    this.advance(length);
  }

  advance(length) {
    this.at += length;
    if (this.at + length > MEMORY) this.at = 0;
  }

  /** Calls `poll` for ever: from setImmediate while it finds work, woken by the port otherwise. */
  loop(poll) {
    this.poll = () => {
      this.idle = poll() ? 0 : this.idle + 1;
      if (this.idle > options.spin) this.port.start();
      else setImmediate(this.poll);
    };
    this.poll();
  }

  wake() {
    this.port.stop();
    this.idle = 0;
    this.poll();
  }

  send(from, count) {
    return this.port.send(
      this.slots,
      this.headers,
      this.fragments,
      from,
      count,
      this.views,
      this.regionShared,
    );
  }

  receive() {
    return this.port.receive(this.slab, this.rxSlots, this.sources, 2048);
  }

  psn(i) {
    const at = this.rxSlots[i * 12];
    return (this.slab[at + 9] << 16) | (this.slab[at + 10] << 8) | this.slab[at + 11];
  }
}

function receiver() {
  const side = new Side(options.to, options.from);
  const { slab, rxSlots, copies, views } = side;
  let expected = 0;
  let acked = 0;
  let count = 0;
  let errors = 0;
  let first = 0;
  let last = 0;
  const ack = () => {
    side.put(0, ACK, expected, 0);
    side.send(0, 1);
    acked = count;
  };
  const poll = () => {
    const n = side.receive();
    let c = 0;
    for (let i = 0; i < n; i++) {
      const slot = i * 12;
      if (rxSlots[slot + 6] !== 0 || side.psn(i) !== expected) errors++;
      expected = (side.psn(i) + 1) & MASK;
      const length = rxSlots[slot + 1] - 12 - ((slab[rxSlots[slot] + 1] >> 4) & 3);
      copies[c++] = rxSlots[slot] + 12;
      copies[c++] = 0;
      copies[c++] = side.at;
      copies[c++] = 0;
      copies[c++] = length;
      side.advance(length);
    }
    if (n > 0) {
      if (copyBatch(slab, views, copies, n) !== n) errors++;
      last = now();
      first ||= last;
      count += n;
      if (count - acked >= options.window / 8) ack();
    } else if (count !== acked) {
      ack();
    }
    return n > 0;
  };
  process.on('message', () => {
    process.send({ count, errors, us: last - first, stats: side.port.stats() }, () => process.exit(0));
  });
  side.loop(poll);
  process.send('ready');
}

function sender() {
  const side = new Side(options.from, options.to);
  for (let i = 0; i < side.memory.length; i += 7) side.memory[i] = i * 31;
  const child = fork(fileURLToPath(import.meta.url), ['receiver', ...process.argv.slice(2)]);
  let sent = 0;
  let acked = 0;
  let end = 0;
  let ended = false;
  const pump = () => {
    const n = side.receive();
    for (let i = 0; i < n; i++) {
      const ahead = (side.psn(i) - acked) & MASK;
      if (ahead < 0x80_0000) acked += ahead;
    }
    if (now() >= end) {
      if (!ended) setTimeout(() => child.send('end'), 100);
      ended = true;
      return false;
    }
    const open = sent - acked <= options.window - options.batch;
    if (open) {
      for (let i = 0; i < options.batch; i++) side.put(i, 7, (sent + i) & MASK, options.size);
      for (let at = 0; at < options.batch; ) at = side.send(at, options.batch);
      sent += options.batch;
    }
    return open || n > 0;
  };
  child.on('message', (message) => {
    if (message === 'ready') {
      end = now() + options.seconds * 1e6;
      side.loop(pump);
      return;
    }
    const { count, errors, us, stats } = message;
    const gbps = (count * options.size * 8) / us / 1e3;
    console.log(
      JSON.stringify({
        size: options.size,
        gbps: Number(gbps.toFixed(2)),
        kpps: Number(((count / us) * 1e3).toFixed(0)),
        lost: sent - count,
        errors,
        perDatagram: Number((stats.rxPackets / stats.rxDatagrams).toFixed(1)),
        kernelDrops: stats.kernelDrops,
      }),
    );
    process.exit(0);
  });
}

function alone() {
  const from = new Side(options.from, options.to);
  const to = new Side(options.to, options.from);
  const { rxSlots, copies, slab } = to;
  let psn = 0;
  let errors = 0;
  const turn = () => {
    for (let i = 0; i < options.batch; i++) from.put(i, 7, (psn + i) & MASK, options.size);
    if (from.send(0, options.batch) !== options.batch) errors++;
    for (let n = to.receive(); n > 0; n = to.receive()) {
      let c = 0;
      for (let i = 0; i < n; i++, psn++) {
        const slot = i * 12;
        if (rxSlots[slot + 6] !== 0 || to.psn(i) !== (psn & MASK)) errors++;
        const length = rxSlots[slot + 1] - 12 - ((slab[rxSlots[slot] + 1] >> 4) & 3);
        copies[c++] = rxSlots[slot] + 12;
        copies[c++] = 0;
        copies[c++] = to.at;
        copies[c++] = 0;
        copies[c++] = length;
        to.advance(length);
      }
      copyBatch(slab, to.views, copies, n);
    }
  };
  const warm = now() + 3e5;
  while (now() < warm) turn();
  // The best of many short stretches: what others do on the machine only ever adds.
  let best = Number.POSITIVE_INFINITY;
  for (const end = now() + options.seconds * 1e6; now() < end; ) {
    const before = process.cpuUsage();
    const at = psn;
    for (let i = 0; i < 50; i++) turn();
    const { user, system } = process.cpuUsage(before);
    best = Math.min(best, ((user + system) * 1e3) / (psn - at));
  }
  console.log(JSON.stringify({ size: options.size, nsPerPacket: Math.round(best), errors }));
  process.exit(0);
}

if (process.argv[2] === 'receiver') receiver();
else if (options.alone) alone();
else sender();
