/** Measurements with both adapters in one process. */
import { performance } from 'node:perf_hooks';
import { completionError, openDevice, WorkCompletion } from './build.mjs';

const CAP = { maxSendWr: 8, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };

async function open(address, port, cqe, bytes) {
  const device = await openDevice({ address, port });
  const pd = await device.allocPd();
  const cq = await device.createCq(cqe);
  const mr = await pd.registerMr(new Uint8Array(bytes), { access: { remoteWrite: true } });
  return { device, pd, cq, mr };
}

/** Many connected queue pairs between two adapters. */
export class Many {
  #a;
  #b;
  #pairs = [];
  #size;
  #completions = Array.from({ length: 64 }, () => new WorkCompletion());
  connectionsPerSecond;

  /** `size` is the bytes that each message writes. */
  static async open({ queuePairs, size, port }) {
    const many = new Many();
    const a = await open('127.0.0.1', port, 2 * queuePairs, size);
    const b = await open('127.0.0.2', port, 16, size * queuePairs);
    const started = performance.now();
    for (let i = 0; i < queuePairs; i++) {
      const qp = await a.pd.createQp({ sendCq: a.cq, cap: CAP });
      const other = await b.pd.createQp({ sendCq: b.cq, cap: CAP });
      await qp.connect(other.connectionData(), { timeout: 18 });
      await other.connect(qp.connectionData(), { timeout: 18 });
      const request = {
        opcode: 'RDMA_WRITE',
        signaled: true,
        sgList: [{ mr: a.mr }],
        remote: b.mr.remote(i * size),
      };
      many.#pairs.push({ qp, other, request });
    }
    many.connectionsPerSecond = (queuePairs * 1000) / (performance.now() - started);
    many.#a = a;
    many.#b = b;
    many.#size = size;
    return many;
  }

  /** A WRITE on each queue pair in turn, `rounds` times; Gb/s. */
  async run(rounds) {
    const pairs = this.#pairs;
    const completions = this.#completions;
    const [own, other] = [this.#a.cq, this.#b.cq];
    const start = performance.now();
    for (let round = 0; round < rounds; round++) {
      for (let i = 0; i < pairs.length; i++) pairs[i].qp.postSend(pairs[i].request);
      for (let done = 0; done < pairs.length; ) {
        const n = own.pollInto(completions);
        for (let i = 0; i < n; i++) if (!completions[i].ok) throw completionError(completions[i]);
        done += n;
        // The other adapter has to have its turn.
        if (n === 0) other.pollInto(completions);
      }
    }
    const seconds = (performance.now() - start) / 1000;
    const messages = pairs.length * rounds;
    const { retransmittedPackets } = await this.#a.device.counters();
    return { messages, gbps: (8e-9 * this.#size * messages) / seconds, retransmittedPackets };
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

  /** Cycles a second, and the bytes that memory grew by. */
  async run(count) {
    const before = used();
    const start = performance.now();
    for (let i = 0; i < count; i++) await this.#cycle();
    const seconds = (performance.now() - start) / 1000;
    return { messages: count, seconds, perSecond: count / seconds, grownBytes: used() - before };
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
