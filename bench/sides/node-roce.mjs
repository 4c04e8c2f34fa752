// One side of a node-roce measurement, in a process of its own (sides/process.mjs): obeys messages and answers
// with figures. The argument is the checkout whose build is measured (sides/build.mjs).
import { once } from 'node:events';
import { constants, PerformanceObserver, performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { percentile } from '../statistics.mjs';
import { allocatedBy } from './allocation.mjs';
import { Churn, Idle, Loop, Many, Turns } from './alone.mjs';
import { completionError, openDevice, WorkCompletion } from './build.mjs';
import { Connecting } from './connecting.mjs';
import { LinkTrips } from './link-alone.mjs';
import { RoundTrips, Streams } from './one-thread.mjs';
import { Stream } from './stream.mjs';

const BUFFER = 32 << 20;
const MAX_MESSAGES = 512;

/** Young collections (Scavenger) since the process began, by their times. */
const young = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.detail.kind === constants.NODE_PERFORMANCE_GC_MINOR) young.push(entry.startTime);
  }
}).observe({ entryTypes: ['gc'] });

const completions = Array.from({ length: 64 }, () => new WorkCompletion());

class Side {
  /** Further options go to `openDevice`. */
  static async open({ mtu, offload, engine = 'inline', ...options }) {
    const side = new Side();
    side.mtu = mtu;
    side.device = await openDevice({ ...options, engine, offload, zeroChecksum: !offload });
    side.pd = await side.device.allocPd();
    side.sendCq = await side.device.createCq(2 * MAX_MESSAGES);
    side.recvCq = await side.device.createCq(2 * MAX_MESSAGES);
    const buffer = engine === 'worker' ? new SharedArrayBuffer(BUFFER) : new ArrayBuffer(BUFFER);
    side.mr = await side.pd.registerMr(new Uint8Array(buffer).fill(0x5a), {
      access: { remoteWrite: true, remoteRead: true, remoteAtomic: true },
    });
    side.qp = await side.pd.createQp({
      sendCq: side.sendCq,
      recvCq: side.recvCq,
      cap: { maxSendWr: MAX_MESSAGES, maxRecvWr: MAX_MESSAGES, maxSendSge: 1, maxRecvSge: 1 },
    });
    return side;
  }

  /** Room in the buffer for `size` bytes that nothing else in flight uses. */
  static slots(size, depth) {
    const stride = Math.max(64, (size + 63) & ~63);
    return Array.from({ length: Math.min(depth, Math.floor(BUFFER / stride)) }, (_, i) => i * stride);
  }

  postReceives(size, count) {
    for (let i = 0; i < count; i++) {
      this.qp.postRecv({ sgList: [{ mr: this.mr, offset: 0, length: size }] });
    }
  }

  /** Makes the requests of one kind of message, as many as may be in flight (`depth`). */
  prepare({ operation, size, depth, every, remote, events, batch, numbers }) {
    const offsets = Side.slots(size, depth);
    this.outgoing = new Stream({
      qp: this.qp,
      cq: this.sendCq,
      mr: this.mr,
      operation,
      size,
      offsets,
      every: every ?? Math.max(1, Math.min(16, offsets.length >> 2)),
      remote,
      events,
      batch,
      numbers,
    });
    return { ring: offsets.length };
  }

  /** Keeps receives posted until `count` messages have come. */
  async absorb({ size, count, numbers }) {
    const { qp, recvCq, mr } = this;
    const request = { sgList: [{ mr: this.mr, offset: 0, length: size }] };
    for (let taken = 0; taken < count; ) {
      // Messages may have come before the command to take them.
      for (let room = qp.cap.maxRecvWr - qp.recvPending; room > 0; room--)
        if (numbers) qp.postRecvOf(mr, 0, size);
        else qp.postRecv(request);
      const n = recvCq.pollInto(completions);
      for (let i = 0; i < n; i++) if (!completions[i].ok) throw completionError(completions[i]);
      taken += n;
      if (n === 0 && taken < count) await recvCq.wait();
    }
  }

  /** SENDs there and back; each side answers each message. */
  async echo({ size, count, events, first }) {
    const times = new Float64Array(count);
    const request = { opcode: 'SEND', signaled: false, sgList: [{ mr: this.mr, offset: 0, length: size }] };
    const last = { ...request, signaled: true };
    const receive = { sgList: [{ mr: this.mr, offset: Math.max(4096, size), length: size }] };
    const { qp, recvCq, sendCq } = this;
    for (let i = 0, sent = 0; i < count; i++) {
      const start = performance.now();
      for (let half = 0; half < 2; half++) {
        if ((half === 0) === first) {
          qp.postSend(sent++ % 64 === 63 ? last : request);
          // Polling sends it; then what nobody waits for.
          sendCq.pollInto(completions);
          qp.postRecv(receive);
          continue;
        }
        while (recvCq.pollInto(completions) === 0) if (events) await recvCq.wait();
        if (!completions[0].ok) throw completionError(completions[0]);
      }
      times[i] = (performance.now() - start) * 1000;
    }
    return times;
  }
}

/** Times from posting to completion of so many small requests, one after another, µs. */
async function tails({ qp, sendCq, mr }, { operation, remote, count }) {
  const times = new Float64Array(count);
  const isAtomic = operation === 'FETCH_AND_ADD';
  const sgList = [{ mr, offset: 0, length: 8 }];
  const request = isAtomic
    ? { opcode: 'ATOMIC_FETCH_AND_ADD', signaled: true, sgList, remote, compareAdd: 1n }
    : { opcode: 'RDMA_WRITE', signaled: true, sgList, remote };
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    qp.postSend(request);
    while (sendCq.pollInto(completions) === 0);
    if (!completions[0].ok) throw completionError(completions[0]);
    times[i] = (performance.now() - start) * 1000;
    // The side that responds lives in another process; the run loop of this one has its turn.
    if (i % 256 === 255) await sleep(0);
  }
  return times;
}

/** Runs `body` with the clock; with `sampled`, the bytes that V8 allocated meanwhile. */
async function timed(sampled, body) {
  const start = performance.now();
  const { result, bytes } = sampled ? await allocatedBy(body) : { result: await body() };
  return { result, seconds: (performance.now() - start) / 1000, allocated: bytes };
}

function percentiles(times) {
  times.sort();
  const at = (percent) => percentile(times, percent);
  return { p50: at(50), p99: at(99), p999: at(99.9) };
}

/** The options that this process was given to open. */
let side;
let many;
let churn;
let turns;
let loop;
let idle;
let connecting;
let inThread;
const commands = {
  async open(options) {
    side = await Side.open(options);
    return { data: side.qp.connectionData(), remote: side.mr.remote() };
  },
  async connect({ peer }) {
    await side.qp.connect(peer, { pathMtu: side.mtu, timeout: 17 });
  },
  async receives({ size, count }) {
    side.postReceives(size, count);
  },
  async prepare(options) {
    return side.prepare(options);
  },
  async stream({ count, sampled }) {
    const { result, ...rest } = await timed(sampled, () => side.outgoing.run(count));
    return { messages: result, ...rest };
  },
  async absorb(options) {
    await side.absorb(options);
  },
  async echo({ sampled, ...options }) {
    const { result, ...rest } = await timed(sampled, () => side.echo(options));
    return { messages: options.count, ...percentiles(result), ...rest };
  },
  async tails(options) {
    const times = await tails(side, options);
    const [first] = times;
    return { first, times: times.sort() };
  },
  async openMany(options) {
    many = await Many.open(options);
    return { connectionsPerSecond: many.connectionsPerSecond };
  },
  async many({ rounds, sampled }) {
    const { result, ...rest } = await timed(sampled, () => many.run(rounds));
    return { ...result, ...rest };
  },
  async openTurns(options) {
    turns = await Turns.open(options);
  },
  async turns({ rounds, slices }) {
    return turns.run(rounds, slices);
  },
  async openLoop(options) {
    loop = await Loop.open(options);
  },
  async loop({ count }) {
    return percentiles(loop.run(count));
  },
  async openIdle(options) {
    idle = await Idle.open(options);
  },
  async idle({ count }) {
    return idle.run(count);
  },
  async openChurn(options) {
    churn = await Churn.open(options);
  },
  async churn({ count, growth }) {
    return churn.run(count, growth);
  },
  async openConnecting(options) {
    connecting = await Connecting.open(options);
  },
  async connects({ count, together }) {
    return connecting.run(count, together);
  },
  async openInThread({ kind, ...options }) {
    inThread = await { streams: Streams, roundTrips: RoundTrips, linkTrips: LinkTrips }[kind].open(options);
  },
  async inThread({ count }) {
    return inThread.run(count);
  },
  async mark() {
    await sleep(20); // The observer hears of collections late.
    const { user, system } = process.cpuUsage();
    const counters = await side.qp.counters();
    return { cpu: user + system, young: young.length, packets: counters.sentPackets };
  },
  async close() {
    await (side?.device ?? many ?? churn ?? turns ?? loop ?? idle ?? connecting ?? inThread)?.close();
  },
};

for (;;) {
  const [{ command, ...options }] = await once(process, 'message');
  try {
    process.send({ result: await commands[command](options) });
  } catch (error) {
    process.send({ error: error.stack });
  }
  if (command === 'close') break;
}
process.disconnect();
