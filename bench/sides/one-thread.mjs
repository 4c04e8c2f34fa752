/** Both adapters in one thread, for processor time: messages one way, and round trips. */
import { completionError, openDevice, WorkCompletion } from './build.mjs';

const ACCESS = { localWrite: true, remoteWrite: true, remoteRead: true };
/** Receives that are posted at once, and that stand ready. */
const RECEIVES = 64;
const READY = 1024;
/** `SendFlags.SIGNALED`: builds from before the methods that take it have no such export. */
export const SIGNALED = 2;
/** One answer in so many is signaled. */
const EVERY = 64;

async function side(address, port, { bytes, cap, fill = 0 }) {
  const device = await openDevice({ address, port });
  const pd = await device.allocPd();
  const sendCq = await device.createCq(4096);
  const recvCq = await device.createCq(4096);
  const qp = await pd.createQp({ sendCq, recvCq, cap });
  const mr = await pd.registerMr(new Uint8Array(bytes).fill(fill), { access: ACCESS });
  return { device, sendCq, recvCq, qp, mr };
}

async function pair(port, options) {
  const a = await side('127.0.0.1', port, { ...options, fill: options.fillLeft });
  const b = await side('127.0.0.2', port, { ...options, fill: options.fillRight });
  await a.qp.connect(b.qp.connectionData(), { pathMtu: 4096 });
  await b.qp.connect(a.qp.connectionData(), { pathMtu: 4096 });
  return [a, b];
}

function take(cq, completions) {
  const n = cq.pollInto(completions);
  for (let i = 0; i < n; i++) if (!completions[i].ok) throw completionError(completions[i]);
  return n;
}

/** Nanoseconds of processor time, user and system, for each of `count`. */
function spentBy(body, count) {
  const before = process.cpuUsage();
  body();
  const { user, system } = process.cpuUsage(before);
  return ((user + system) * 1000) / count;
}

/**
 * Messages of one kind, `window` of them outstanding, posted by lists of `batch`, of which the last is signaled; or SENDs by `postBatch`, by numbers,
 * a call for each, by prepared lists, or by an object that is made for each.
 */
export class Streams {
  #a;
  #b;
  #plan;
  #requests;
  #prepared;
  #receives;
  #completions = Array.from({ length: 128 }, () => new WorkCompletion());
  #posted = 0;
  #done = 0;
  #received = 0;
  #ready = 0;

  static async open({ operation, size, window, batch, posting = 'objects', port }) {
    const streams = new Streams();
    const reads = operation === 'READ';
    const options = { bytes: size, fillLeft: reads ? 0 : 7, fillRight: reads ? 7 : 0 };
    const cap = { maxSendWr: 512, maxRecvWr: 2 * READY };
    [streams.#a, streams.#b] = await pair(port, { ...options, cap });
    const { mr } = streams.#a;
    const remote = streams.#b.mr.remote();
    streams.#plan = { operation, size, window, batch, posting };
    if (/numbers|prepared/.test(posting) && streams.#a.qp.postSendOf === undefined)
      throw new Error('no posting by numbers');
    const sgList = [{ mr, offset: 0, length: size }];
    streams.#requests = Array.from({ length: batch }, (_, i) => {
      const signaled = i === batch - 1;
      if (operation === 'SEND') return { opcode: 'SEND', signaled, sgList };
      return { opcode: `RDMA_${operation}`, signaled, sgList, remote };
    });
    const into = [{ mr: streams.#b.mr, offset: 0, length: size }];
    streams.#receives = Array.from({ length: RECEIVES }, () => ({ sgList: into }));
    if (posting === 'prepared') streams.#prepared = streams.#a.qp.prepare(streams.#requests);
    return streams;
  }

  #post() {
    const { qp, mr } = this.#a;
    const { batch, posting, size } = this.#plan;
    if (posting === 'objects') qp.postSend(this.#requests);
    else if (posting === 'batches') qp.postBatch(this.#requests);
    else if (posting === 'prepared') this.#prepared.post();
    else if (posting === 'made')
      for (let i = 1; i <= batch; i++) {
        const sgList = [{ mr, offset: 0, length: size }];
        qp.postSend({ opcode: 'SEND', signaled: i === batch, sgList });
      }
    else {
      for (let i = 1; i < batch; i++) qp.postSendOf(mr, 0, size);
      qp.postSendOf(mr, 0, size, SIGNALED);
    }
    this.#posted += batch;
  }

  #postReceives() {
    while (this.#ready <= READY - RECEIVES) {
      const { qp, mr } = this.#b;
      const { posting, size } = this.#plan;
      if (posting === 'objects' || posting === 'batches') qp.postRecv(this.#receives);
      else if (posting === 'made')
        for (let i = 0; i < RECEIVES; i++) qp.postRecv({ sgList: [{ mr, offset: 0, length: size }] });
      else for (let i = 0; i < RECEIVES; i++) qp.postRecvOf(mr, 0, size);
      this.#ready += RECEIVES;
    }
  }

  /** Nanoseconds a message, of at least `count` more. */
  run(count) {
    const { operation, window, batch } = this.#plan;
    const isSend = operation === 'SEND';
    const total = Math.ceil(count / batch) * batch;
    const end = this.#done + total;
    const sent = this.#posted + total;
    const ns = spentBy(() => {
      while (this.#done < end || (isSend && this.#received < end)) {
        if (isSend) this.#postReceives();
        while (this.#posted < sent && this.#posted - this.#done + batch <= window) this.#post();
        this.#done += batch * take(this.#a.sendCq, this.#completions);
        const n = take(this.#b.recvCq, this.#completions);
        this.#received += n;
        this.#ready -= n;
      }
    }, total);
    this.#check();
    return ns;
  }

  /** The bytes that arrived are those that were sent: so that no build is measured that loses bytes. */
  #check() {
    const { operation, size } = this.#plan;
    const { mr } = operation === 'READ' ? this.#a : this.#b;
    if (mr.bytes(0, size).some((byte) => byte !== 7)) throw new Error('the payload is wrong');
  }

  async close() {
    await this.#a.device.close();
    await this.#b.device.close();
  }
}

/** SENDs there and back, each side polling. */
export class RoundTrips {
  #sides;
  #completions = Array.from({ length: 64 }, () => new WorkCompletion());

  static async open({ size, port }) {
    const trips = new RoundTrips();
    const cap = { maxSendWr: 256, maxRecvWr: 16 };
    const sides = await pair(port, { bytes: 2 * size, cap });
    trips.#sides = sides.map((one) => {
      const sgList = [{ mr: one.mr, offset: 0, length: size }];
      return {
        ...one,
        request: { opcode: 'SEND', signaled: false, sgList },
        last: { opcode: 'SEND', signaled: true, sgList },
        receive: { sgList: [{ mr: one.mr, offset: size, length: size }] },
        sent: 0,
      };
    });
    for (const { qp, receive } of trips.#sides) for (let i = 0; i < 4; i++) qp.postRecv(receive);
    return trips;
  }

  #pass(from, to) {
    from.qp.postSend(from.sent++ % EVERY === EVERY - 1 ? from.last : from.request);
    take(from.sendCq, this.#completions);
    from.qp.postRecv(from.receive);
    // The sender has another turn where nothing came: its message may wait for one.
    while (take(to.recvCq, this.#completions) === 0) take(from.sendCq, this.#completions);
  }

  /** Nanoseconds a round trip. */
  run(count) {
    const [a, b] = this.#sides;
    return spentBy(() => {
      for (let i = 0; i < count; i++) {
        this.#pass(a, b);
        this.#pass(b, a);
      }
    }, count);
  }

  async close() {
    for (const { device } of this.#sides) await device.close();
  }
}
