// One side of a node-roce measurement, in a process of its own: told what to do by messages from
// contenders/node-roce.mjs, and answering with figures.
import { once } from 'node:events';
import { Session } from 'node:inspector/promises';
import { constants, PerformanceObserver, performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { completionError, openDevice, WorkCompletion } from '@node-roce/verbs-api';
import { percentile } from '../statistics.mjs';
import { churn, many } from './alone.mjs';

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
  static async open({ mtu, offload, ...options }) {
    const side = new Side();
    side.mtu = mtu;
    side.device = await openDevice({ ...options, offload, zeroChecksum: !offload });
    side.pd = await side.device.allocPd();
    side.sendCq = await side.device.createCq(2 * MAX_MESSAGES);
    side.recvCq = await side.device.createCq(2 * MAX_MESSAGES);
    side.mr = await side.pd.registerMr(new Uint8Array(BUFFER).fill(0x5a), {
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

  /** Sends `count` messages of one kind, as many at once as `depth`, and polls for their completions. */
  async stream({ operation, size, count, depth, remote }) {
    const offsets = Side.slots(size, depth);
    const every = Math.max(1, Math.min(16, offsets.length >> 2));
    // Requests are made once and posted again and again: what is measured is posting, not making objects.
    const requests = offsets.map((offset, i) => ({
      opcode: operation === 'SEND' ? 'SEND' : `RDMA_${operation}`,
      signaled: (i + 1) % every === 0 || i === offsets.length - 1,
      sgList: [{ mr: this.mr, offset, length: size }],
      ...(operation === 'SEND' ? {} : { remote: { addr: remote.addr + BigInt(offset), rkey: remote.rkey } }),
    }));
    const ring = requests.length;
    let posted = 0;
    let done = 0;
    let signaled = 0;
    const weights = [];
    let weight = 0;
    for (const { signaled: counts } of requests) {
      weight++;
      if (!counts) continue;
      weights.push(weight);
      weight = 0;
    }
    const total = Math.ceil(count / ring) * ring;
    while (done < total) {
      while (posted < total && posted - done < ring) this.qp.postSend(requests[posted++ % ring]);
      const n = this.sendCq.pollInto(completions);
      for (let i = 0; i < n; i++) {
        if (!completions[i].ok) throw completionError(completions[i]);
        done += weights[signaled++ % weights.length];
      }
    }
    return total;
  }

  /** Keeps receives posted until `count` messages have come. */
  async absorb({ size, count }) {
    const { qp, recvCq } = this;
    const request = { sgList: [{ mr: this.mr, offset: 0, length: size }] };
    for (let taken = 0; taken < count; ) {
      // Messages may have come before we were told to take them.
      for (let room = qp.cap.maxRecvWr - qp.recvPending; room > 0; room--) qp.postRecv(request);
      const n = recvCq.pollInto(completions);
      for (let i = 0; i < n; i++) if (!completions[i].ok) throw completionError(completions[i]);
      taken += n;
      if (n === 0 && taken < count) await recvCq.wait();
    }
  }

  /** 64-byte SENDs there and back; each side answers what it got. */
  async echo({ size, count, events, first }) {
    const times = new Float64Array(count);
    const request = { opcode: 'SEND', signaled: false, sgList: [{ mr: this.mr, offset: 0, length: size }] };
    const last = { ...request, signaled: true };
    const receive = { sgList: [{ mr: this.mr, offset: 4096, length: size }] };
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

/** V8's sampling heap profiler, with what was collected in the meantime. */
class AllocationSampler {
  static async start() {
    const sampler = new AllocationSampler();
    sampler.session = new Session();
    sampler.session.connect();
    await sampler.session.post('HeapProfiler.startSampling', {
      samplingInterval: 1024,
      includeObjectsCollectedByMajorGC: true,
      includeObjectsCollectedByMinorGC: true,
    });
    return sampler;
  }

  /** Bytes. */
  async stop() {
    const { profile } = await this.session.post('HeapProfiler.stopSampling');
    this.session.disconnect();
    const sum = ({ selfSize, children }) => children.reduce((bytes, child) => bytes + sum(child), selfSize);
    return sum(profile.head);
  }
}

let side;
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
  async stream(options) {
    const sampler = options.sampled ? await AllocationSampler.start() : undefined;
    const start = performance.now();
    const messages = await side.stream(options);
    const seconds = (performance.now() - start) / 1000;
    return { messages, seconds, allocated: await sampler?.stop() };
  },
  async absorb(options) {
    await side.absorb(options);
  },
  async echo(options) {
    const times = (await side.echo(options)).sort();
    return { p50: percentile(times, 50), p99: percentile(times, 99) };
  },
  async many(options) {
    return many(options);
  },
  async churn(options) {
    return churn(options);
  },
  async mark() {
    await sleep(20); // The observer hears of collections late.
    const { user, system } = process.cpuUsage();
    const counters = await side.qp.counters();
    return { cpu: user + system, young: young.length, packets: counters.sentPackets };
  },
  async close() {
    await side.device.close();
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
