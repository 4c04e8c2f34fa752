// The channel of `-R`: messages as SENDs of a connection by the connection manager, keys as raw structures.
import { CmId } from '@node-roce/rdmacm';
import { rawKey, rawKeyOf } from './messages.mjs';

/** Larger than any message of the dialogue. */
const SLOT = 512;
/** The key of a barrier before there are queue pairs. */
const EMPTY = { lid: 0, outReads: 0, qpn: 0, psn: 0, rkey: 0, vaddr: 0n };

/** Messages over a queue pair that the connection manager connected, and the queue pairs of the data. */
export class CmChannel {
  #test;
  #device;
  #where;
  #id;
  #region;
  #data = [];

  /** Connects or accepts the connection of the dialogue. */
  static async open(test, device, where) {
    const channel = new CmChannel();
    channel.#test = test;
    channel.#device = device;
    channel.#where = where;
    const pd = await device.allocPd();
    channel.#region = await pd.registerMr(new SharedArrayBuffer(2 * SLOT));
    const prepare = async (id) => {
      await id.createQp(pd, { sendCq: await device.createCq(16), recvCq: await device.createCq(16) });
      channel.#id = id;
      channel.#postReceive();
    };
    const none = { responderResources: 0, initiatorDepth: 0 };
    if (test.role === 'client') await channel.#connect(prepare, none);
    else {
      const accepted = await channel.#accept(await channel.#listen(1), 1, prepare, none);
      channel.#id = accepted[0];
    }
    return channel;
  }

  /** Tries for some seconds: the server may not listen yet. */
  async #connect(prepare, parameters) {
    for (const end = Date.now() + 20_000; ; ) {
      const id = new CmId({ device: this.#device });
      try {
        await id.resolveAddr({ host: this.#where.host, port: this.#where.port });
        await id.resolveRoute();
        await prepare(id);
        await id.connect(parameters);
        return id;
      } catch (error) {
        await id.destroy();
        if (Date.now() > end || error.code !== 'ERR_ROCE_CM_REFUSED') throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  async #listen(count) {
    const listener = new CmId({ device: this.#device });
    await listener.listen({ port: this.#where.port, backlog: count });
    this.#where.port = listener.localAddress.port;
    this.#where.onListening?.(this.#where.port);
    return listener;
  }

  async #accept(listener, count, prepare, parameters) {
    const ids = [];
    while (ids.length < count) {
      const id = await listener.getRequest();
      await prepare(id);
      await id.accept(parameters);
      ids.push(id);
    }
    await listener.destroy();
    return ids;
  }

  /** Makes and connects the queue pairs of the data, between two barriers. */
  async connectAll(count, outReads, pd, init) {
    // Before the barrier's answer: perftest's client connects at once, and ends by SIGSEGV where it is refused (docs/quirks.md).
    const listener = this.#test.role === 'server' ? await this.#listen(count) : undefined;
    await this.exchangeKey(EMPTY);
    const reads = this.#test.verb === 'read' || this.#test.verb === 'atomic' ? outReads : 0;
    const parameters = { responderResources: reads, initiatorDepth: reads };
    const prepare = (id) => id.createQp(pd, init);
    if (listener) this.#data = await this.#accept(listener, count, prepare, parameters);
    else for (let i = 0; i < count; i++) this.#data.push(await this.#connect(prepare, parameters));
    await this.exchangeKey(EMPTY);
    return this.#data.map((id) => id.qp);
  }

  #postReceive() {
    this.#id.qp.postRecv({ sgList: [{ mr: this.#region, offset: 0, length: SLOT }] });
  }

  async #take(length) {
    const signal = AbortSignal.timeout(this.#test.patience);
    const wc = await this.#id.qp.recvCq.next({ signal });
    if (!wc.ok) throw new Error(`the peer has ended the dialogue: ${wc.status}`);
    const bytes = Buffer.from(this.#region.bytes(0, wc.byteLen));
    if (bytes.length !== length) throw new Error(`a message of ${bytes.length} bytes, not ${length}`);
    this.#postReceive();
    return bytes;
  }

  async #send(message) {
    this.#region.bytes(SLOT, message.length).set(message);
    const sgList = [{ mr: this.#region, offset: SLOT, length: message.length }];
    this.#id.qp.postSend({ opcode: 'SEND', signaled: true, sgList });
    const wc = await this.#id.qp.sendCq.next({ signal: AbortSignal.timeout(this.#test.patience) });
    if (!wc.ok) throw new Error(`the peer takes no message: ${wc.status}`);
  }

  async exchange(message, length = message.length) {
    if (this.#test.role === 'client') await this.#send(message);
    const answer = await this.#take(length);
    if (this.#test.role === 'server') await this.#send(message);
    return answer;
  }

  async exchangeKey(key) {
    return rawKeyOf(await this.exchange(rawKey(key, 0, this.#test.version)));
  }

  /** Nothing: only TCP has it. */
  async done() {}

  /** All connections at once: a client of 6.29 agrees to none of them before it has heard of all. */
  async close() {
    const ids = [...this.#data, this.#id].filter((id) => id !== undefined);
    const late = new Promise((resolve) => setTimeout(resolve, 2000).unref());
    await Promise.race([late, Promise.all(ids.map((id) => id.disconnect().catch(() => {})))]);
    await Promise.all(ids.map((id) => id.destroy()));
  }
}
