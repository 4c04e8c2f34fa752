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
   */
  static async open({ queuePairs, size, operation = 'WRITE', depth = 1, mtu = 4096, port }) {
    const many = new Many();
    many.#plan = { operation, size, depth };
    const cqe = 2 * queuePairs * depth;
    const a = await open('127.0.0.1', port, cqe, size);
    const b = await open('127.0.0.2', port, cqe, size * queuePairs);
    const cap = { ...CAP, maxSendWr: Math.max(CAP.maxSendWr, depth), maxRecvWr: depth };
    const started = performance.now();
    for (let i = 0; i < queuePairs; i++) {
      const qp = await a.pd.createQp({ sendCq: a.cq, cap });
      const other = await b.pd.createQp({ sendCq: b.cq, cap });
      await qp.connect(other.connectionData(), { timeout: 18, pathMtu: mtu });
      await other.connect(qp.connectionData(), { timeout: 18, pathMtu: mtu });
      const sgList = [{ mr: a.mr }];
      const remote = b.mr.remote(i * size);
      const receive = { sgList: [{ mr: b.mr, offset: i * size, length: size }] };
      // Literals, not spreads: V8 gives each object made by a spread a shape of its own, and then looks up each member
      // that a request does not have anew, at some 100 bytes a message.
      const requests = Array.from({ length: depth }, (_, k) =>
        operation === 'SEND'
          ? { opcode: 'SEND', sgList, signaled: k === depth - 1 }
          : { opcode: `RDMA_${operation}`, sgList, remote, signaled: k === depth - 1 },
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
    const [own, other] = [this.#a.cq, this.#b.cq];
    const start = performance.now();
    const before = process.cpuUsage();
    for (let round = 0; round < rounds; round++) {
      for (let i = 0; i < pairs.length; i++) this.#post(pairs[i]);
      for (let done = 0; done < pairs.length; ) {
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
