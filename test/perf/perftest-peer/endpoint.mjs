// Queue pairs of the peer on a device of verbs-api, and the data phase of each test over them.
import { setImmediate as turn } from 'node:timers/promises';
import { Access, GRH_BYTES, openDevice } from '@node-roce/verbs-api';
import { Run } from './run.mjs';

const UD_QKEY = 0x11111111;
const gidOfAddress = (device, index) => Buffer.from(device.gids[index].gid);

/** The side of a test that owns memory and queue pairs. */
export class Endpoint {
  #test;
  #device;
  #gidIndex;
  #agreed;
  #pd;
  #cqs;
  #half;
  qps = [];
  remotes = [];
  handles = [];

  /** @param address of the device; @param options more of `openDevice` */
  static async open(test, { address, gidIndex = 0, ...options }) {
    return new Endpoint(test, await openDevice({ address, ...options }), gidIndex);
  }

  constructor(test, device, gidIndex) {
    this.#test = test;
    this.#device = device;
    this.#gidIndex = gidIndex;
  }

  get test() {
    return this.#test;
  }

  get agreed() {
    return this.#agreed;
  }

  get device() {
    return this.#device;
  }

  /** Makes memory and queue pairs; a key for each of them. With `-R` the channel connects them. */
  async create(agreed, channel) {
    const test = this.#test;
    this.#agreed = agreed;
    this.#pd = await this.#device.allocPd();
    const entries = 2 * test.depth * test.qps + 64;
    this.#cqs = { send: await this.#device.createCq(entries), recv: await this.#device.createCq(entries) };
    // As perftest lays it out: the halves to send from, then those that the peer names.
    this.#half = Math.max(agreed.size, agreed.cycle) + 2 * agreed.line;
    const access = { remoteWrite: true, remoteRead: true, remoteAtomic: true };
    this.region = await this.#pd.registerMr(new SharedArrayBuffer(2 * test.qps * this.#half), { access });
    this.memory = Buffer.from(this.region.buffer);
    const cap = { maxSendWr: test.depth, maxRecvWr: test.depth, maxSendSge: 1, maxRecvSge: 1 };
    const init = { sendCq: this.#cqs.send, recvCq: this.#cqs.recv, cap };
    if (test.cm) this.qps = await channel.connectAll(test.qps, agreed.outReads, this.#pd, init);
    else
      for (let i = 0; i < test.qps; i++)
        this.qps.push(await this.#pd.createQp({ type: test.connection, ...init }));
    const gid = gidOfAddress(this.#device, this.#gidIndex);
    return this.qps.map((qp, i) => ({
      ...{ lid: 0, outReads: agreed.outReads, qpn: qp.qpNum, psn: qp.initialPsn, gid },
      ...{ rkey: this.region.rkey, vaddr: this.region.iova + BigInt(this.receiveOffset(i)) },
    }));
  }

  sendOffset = (i) => i * this.#half;
  receiveOffset = (i) => (this.#test.qps + i) * this.#half;
  get sendCq() {
    return this.#cqs.send;
  }
  get recvCq() {
    return this.#cqs.recv;
  }

  async connect(keys) {
    const { connection, cm } = this.#test;
    this.remotes = keys;
    if (cm) return;
    for (const [i, key] of keys.entries()) {
      const qp = this.qps[i];
      if (connection === 'UD') await this.#connectDatagrams(qp, key);
      else {
        const remote = { qpNum: key.qpn, psn: key.psn, gid: textOfGid(key.gid), mtu: this.#agreed.mtu };
        const access = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;
        await qp.connect(remote, {
          ...{ pathMtu: this.#agreed.mtu, gidIndex: this.#gidIndex, hopLimit: 255, access },
          ...(connection === 'RC' && {
            maxRdAtomic: key.outReads,
            maxDestRdAtomic: this.#agreed.outReads,
          }),
        });
      }
    }
  }

  async #connectDatagrams(qp, key) {
    await qp.modify({ qpState: 'INIT', pkeyIndex: 0, portNum: 1, qkey: UD_QKEY });
    await qp.modify({ qpState: 'RTR' });
    await qp.modify({ qpState: 'RTS', sqPsn: qp.initialPsn });
    this.handles.push(await this.#pd.createAh({ gid: key.gid, gidIndex: this.#gidIndex, hopLimit: 255 }));
  }

  /** The peer's part of a work request to queue pair `i`; `offset` counts from the peer's address. */
  target(i, offset) {
    const { qpn, vaddr, rkey } = this.remotes[i];
    if (this.#test.connection === 'UD')
      return { ud: { ah: this.handles[i], remoteQpn: qpn, remoteQkey: UD_QKEY } };
    return this.#test.verb === 'send' ? {} : { remote: { addr: vaddr + BigInt(offset), rkey } };
  }

  /** Bytes before a message in a receive. */
  get headroom() {
    return this.#test.connection === 'UD' ? GRH_BYTES : 0;
  }

  async prepare(size) {
    this.run_ = new Run(this, size);
    this.run_.prepare();
  }

  async run(size) {
    const run = this.run_ ?? new Run(this, size);
    this.run_ = undefined;
    return run.play();
  }

  /** Waits for a turn of the event loop, in which the engine works. */
  turn = turn;

  async close() {
    await this.#device.close();
  }
}

/** An IPv6 text of 16 bytes; an IPv4 address if it is mapped. */
function textOfGid(gid) {
  const words = [0, 2, 4, 6, 8, 10, 12, 14].map((at) => gid.readUInt16BE(at).toString(16));
  const mapped = gid.subarray(0, 12).equals(Buffer.from('00000000000000000000ffff', 'hex'));
  return mapped ? [...gid.subarray(12)].join('.') : words.join(':');
}
