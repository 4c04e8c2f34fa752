/** Measurements with both adapters in one process. */
import { performance } from 'node:perf_hooks';
import { completionError, openDevice, WorkCompletion } from './build.mjs';

const CAP = { maxSendWr: 8, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };

async function open(address, port, cqe, bytes) {
  const device = await openDevice({ address, port });
  const pd = await device.allocPd();
  const cq = await device.createCq(cqe);
  const mr = await pd.registerMr(new Uint8Array(bytes), {
    access: { remoteWrite: true, remoteRead: true },
  });
  return { device, pd, cq, mr };
}

/** Connected queue pairs between two adapters, which take turns in this thread. */
export class Many {
  #a;
  #b;
  #pairs = [];
  #plan;
  #completions = Array.from({ length: 64 }, () => new WorkCompletion());
  connectionsPerSecond;

  /**
   * @param operation SEND, WRITE or READ
   * @param size bytes of a message
   * @param depth messages on each queue pair at a time; the last of them is signaled
   * @param each every one is signaled
   * @param places of the peer's memory, which the messages go to in turn
   */
  static async open({ queuePairs, places = queuePairs, port, ...options }) {
    const { size, operation = 'WRITE', depth = 1, each = false, mtu = 4096 } = options;
    const many = new Many();
    many.#plan = { operation, size, depth, signaled: each ? depth : 1 };
    const cqe = 2 * queuePairs * depth;
    const a = await open('127.0.0.1', port, cqe, size);
    const b = await open('127.0.0.2', port, cqe, size * places);
    const cap = { ...CAP, maxSendWr: Math.max(CAP.maxSendWr, depth), maxRecvWr: depth };
    const started = performance.now();
    for (let i = 0; i < queuePairs; i++) {
      const qp = await a.pd.createQp({ sendCq: a.cq, cap });
      const other = await b.pd.createQp({ sendCq: b.cq, cap });
      await qp.connect(other.connectionData(), { timeout: 18, pathMtu: mtu });
      await other.connect(qp.connectionData(), { timeout: 18, pathMtu: mtu });
      const sgList = [{ mr: a.mr }];
      const offsetOf = (k) => ((i * depth + k) % places) * size;
      const receive = { sgList: [{ mr: b.mr, offset: offsetOf(0), length: size }] };
      // Literals, not spreads: V8 gives each object made by a spread a shape of its own, and then looks up each member
      // that a request does not have anew, at some 100 bytes a message.
      const requests = Array.from({ length: depth }, (_, k) =>
        operation === 'SEND'
          ? { opcode: 'SEND', sgList, signaled: each || k === depth - 1 }
          : {
              opcode: `RDMA_${operation}`,
              sgList,
              remote: b.mr.remote(offsetOf(k)),
              signaled: each || k === depth - 1,
            },
      );
      many.#pairs.push({ qp, other, requests, receive });
    }
    many.connectionsPerSecond = (queuePairs * 1000) / (performance.now() - started);
    many.#a = a;
    many.#b = b;
    return many;
  }

  #post({ qp, other, requests, receive }) {
    if (this.#plan.operation === 'SEND') for (let i = 0; i < requests.length; i++) other.postRecv(receive);
    for (let i = 0; i < requests.length; i++) qp.postSend(requests[i]);
  }

  /** `depth` messages on each queue pair in turn, `rounds` times; Gb/s, and nanoseconds of CPU a message. */
  async run(rounds) {
    const pairs = this.#pairs;
    const completions = this.#completions;
    const signaled = pairs.length * this.#plan.signaled;
    const [own, other] = [this.#a.cq, this.#b.cq];
    const start = performance.now();
    const before = process.cpuUsage();
    for (let round = 0; round < rounds; round++) {
      for (let i = 0; i < pairs.length; i++) this.#post(pairs[i]);
      for (let done = 0; done < signaled; ) {
        const n = own.pollInto(completions);
        for (let i = 0; i < n; i++) if (!completions[i].ok) throw completionError(completions[i]);
        done += n;
        // The other adapter has to have its turn.
        if (n === 0) other.pollInto(completions);
      }
      while (other.pollInto(completions) > 0);
    }
    const { user, system } = process.cpuUsage(before);
    const seconds = (performance.now() - start) / 1000;
    const { size, depth } = this.#plan;
    const messages = pairs.length * depth * rounds;
    const { retransmittedPackets } = await this.#a.device.counters();
    return {
      messages,
      gbps: (8e-9 * size * messages) / seconds,
      cpuSeconds: (user + system) / 1e6,
      cpuNsPerMessage: ((user + system) * 1000) / messages,
      retransmittedPackets,
    };
  }

  async close() {
    await this.#a.device.close();
    await this.#b.device.close();
  }
}

/**
 * The same WRITEs over many queue pairs in turn and over one, each signaled, to the same memory, all of a round posted at once: `depth` on
 * each queue pair.
 */
export class Turns {
  #many;
  #one;

  static async open({ queuePairs, depth, size, port }) {
    const turns = new Turns();
    const plan = { each: true, size, places: queuePairs };
    turns.#one = await Many.open({ ...plan, queuePairs: 1, depth: queuePairs * depth, port });
    turns.#many = await Many.open({ ...plan, queuePairs, depth, port: port + 1 });
    return turns;
  }

  /** Processor time of one queue pair over that of many: median of some slices in turn, of `rounds` each. */
  async run(rounds, slices) {
    const found = [];
    for (let i = 0; i < slices; i++) {
      const [first, second] = i % 2 === 0 ? [this.#one, this.#many] : [this.#many, this.#one];
      const results = [await first.run(rounds), await second.run(rounds)];
      const [one, many] = i % 2 === 0 ? results : results.reverse();
      found.push({ one: one.cpuNsPerMessage, many: many.cpuNsPerMessage });
    }
    const middle = (values) => values.sort((p, q) => p - q)[values.length >> 1];
    return {
      ratio: middle(found.map(({ one, many }) => one / many)),
      cpuNsOne: middle(found.map(({ one }) => one)),
      cpuNsMany: middle(found.map(({ many }) => many)),
    };
  }

  async close() {
    await this.#one.close();
    await this.#many.close();
  }
}

/** Two queue pairs of one adapter, connected to each other, that answer each other's SENDs: bench/loop/loop.c in JavaScript. */
export class Loop {
  #opened;
  #queuePairs = [];
  #receives;
  #completions = [new WorkCompletion()];

  static async open({ port, size }) {
    const loop = new Loop();
    loop.#opened = await open('127.0.0.1', port, 256, size);
    const { device, pd, cq } = loop.#opened;
    loop.#receives = await device.createCq(32);
    const cap = { maxSendWr: 128, maxRecvWr: 8, maxInlineData: size };
    for (let i = 0; i < 2; i++)
      loop.#queuePairs.push(await pd.createQp({ sendCq: cq, recvCq: loop.#receives, cap }));
    const [a, b] = loop.#queuePairs;
    await a.connect(b.connectionData(), { pathMtu: 1024 });
    await b.connect(a.connectionData(), { pathMtu: 1024 });
    for (const qp of loop.#queuePairs) for (let i = 0; i < 8; i++) loop.#receive(qp);
    return loop;
  }

  #receive(qp) {
    qp.postRecv({ sgList: [{ mr: this.#opened.mr }] });
  }

  #take(cq) {
    const completions = this.#completions;
    while (cq.pollInto(completions) === 0);
    if (!completions[0].ok) throw completionError(completions[0]);
  }

  /** Times there and back, µs. */
  run(count) {
    const { cq, mr } = this.#opened;
    const times = new Float64Array(count);
    const request = { opcode: 'SEND', signaled: false, inline: true, sgList: [{ mr }] };
    const signaled = { ...request, signaled: true };
    for (let i = 0; i < count; i++) {
      const start = performance.now();
      for (let half = 0; half < 2; half++) {
        this.#queuePairs[half].postSend(i % 64 === 63 ? signaled : request);
        this.#take(this.#receives);
        this.#receive(this.#queuePairs[1 - half]);
      }
      times[i] = (performance.now() - start) * 1000;
      if (i % 64 === 0 && i > 0) for (let half = 0; half < 2; half++) this.#take(cq);
    }
    return times;
  }

  async close() {
    await this.#opened.device.close();
  }
}

/** Connections that may exist before memory is measured: code, tables and the young generation have their size then. */
const BEFORE = 100;

/** Memory of connected RC queue pairs with queues of 16, which were never posted to: both sides count, one each. */
export class Idle {
  #a;
  #b;
  #pairs = [];

  static async open({ port }) {
    const idle = new Idle();
    idle.#a = await open('127.0.0.1', port, 16, 4096);
    idle.#b = await open('127.0.0.2', port, 4096, 4096);
    return idle;
  }

  async #add(count) {
    // All but the depth as the program leaves it: 128 bytes inline, one element.
    const cap = { maxSendWr: 16, maxRecvWr: 16 };
    for (let i = 0; i < count; i++) {
      const qp = await this.#a.pd.createQp({ sendCq: this.#a.cq, cap });
      const other = await this.#b.pd.createQp({ sendCq: this.#b.cq, cap });
      await qp.connect(other.connectionData(), { timeout: 18 });
      await other.connect(qp.connectionData(), { timeout: 18 });
      this.#pairs.push(qp, other);
    }
  }

  /** Bytes for each of `count` queue pairs, half of them on each adapter, then after one WRITE of 64 bytes on each connection. */
  async run(count) {
    await this.#add(BEFORE);
    fillYoung();
    const before = await settled();
    await this.#add(count / 2);
    const idle = await settled();
    await this.#write();
    const used = await settled();
    const of = (after, name) => (after[name] - before[name]) / count;
    return {
      rssBytes: of(idle, 'rss'),
      heapBytes: of(idle, 'heapUsed'),
      bufferBytes: of(idle, 'arrayBuffers'),
      rssBytesAfterWrite: of(used, 'rss'),
      heapBytesAfterWrite: of(used, 'heapUsed'),
    };
  }

  async #write() {
    const completion = [new WorkCompletion()];
    const others = [new WorkCompletion()];
    const sgList = [{ mr: this.#a.mr, offset: 0, length: 64 }];
    const request = { opcode: 'RDMA_WRITE', sgList, remote: this.#b.mr.remote(0), signaled: true };
    for (let i = 0; i < this.#pairs.length; i += 2) {
      this.#pairs[i].postSend(request);
      while (this.#a.cq.pollInto(completion) === 0) this.#b.cq.pollInto(others);
      if (!completion[0].ok) throw completionError(completion[0]);
    }
  }

  async close() {
    await this.#a.device.close();
    await this.#b.device.close();
  }
}

/** Lets V8 give the young generation all the memory that it will have. */
function fillYoung() {
  let kept = [];
  for (let i = 0; i < 4_000_000; i++) {
    kept.push({ i });
    if (kept.length === 300_000) kept = [];
  }
}

/** Memory after all garbage is collected. */
async function settled() {
  for (let i = 0; i < 4; i++) {
    globalThis.gc();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return process.memoryUsage();
}

/** A region, a completion queue and a queue pair created and destroyed, one after the other. */
export class Churn {
  #opened;
  #bytes = new Uint8Array(4096);

  static async open({ port }) {
    const churn = new Churn();
    churn.#opened = await open('127.0.0.1', port, 16, 4096);
    return churn;
  }

  async #cycle() {
    const { device, pd, cq } = this.#opened;
    const mr = await pd.registerMr(this.#bytes);
    const own = await device.createCq(1);
    const qp = await pd.createQp({ sendCq: own, recvCq: cq, cap: CAP });
    await qp.close();
    await own.destroy();
    await mr.deregister();
  }

  /**
   * Cycles a second; with `growth`, the bytes that memory grew by. That collects all garbage before and after, and V8
   * forgets the code that it has optimized for objects of which then none lives: runs that are compared do without.
   */
  async run(count, growth) {
    const before = growth && used();
    const start = performance.now();
    for (let i = 0; i < count; i++) await this.#cycle();
    const seconds = (performance.now() - start) / 1000;
    return { messages: count, seconds, perSecond: count / seconds, grownBytes: growth && used() - before };
  }

  async close() {
    await this.#opened.device.close();
  }
}

function used() {
  globalThis.gc();
  const { heapUsed, arrayBuffers, external } = process.memoryUsage();
  return heapUsed + arrayBuffers + external;
}
