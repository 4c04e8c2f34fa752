/** Connections by the connection manager between two devices in one process, made and ended. */
import { performance } from 'node:perf_hooks';
import { CmId, openDevice } from './build.mjs';

const CAP = { maxSendWr: 1, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
const SERVER = '127.0.0.2';
/** TIMEWAIT of 16 ms: what it holds is little at any rate. */
const ackTimeout = 12;

/** A client and a server that accepts all. */
export class Connecting {
  #ends;
  #listener;
  #serving;

  static async open({ port }) {
    const connecting = new Connecting();
    const end = async (address) => {
      const device = await openDevice({ address, port });
      return { device, pd: await device.allocPd(), cq: await device.createCq(16) };
    };
    connecting.#ends = [await end('127.0.0.1'), await end(SERVER)];
    connecting.#listener = new CmId({ device: connecting.#ends[1].device, ackTimeout });
    await connecting.#listener.listen({ port: 7471 });
    connecting.#serving = connecting.#serve();
    return connecting;
  }

  async #serve() {
    const [, { pd, cq }] = this.#ends;
    for await (const id of this.#listener) {
      void (async () => {
        await id.createQp(pd, { sendCq: cq, cap: CAP });
        await id.accept().catch(() => {}); // The client may be gone already.
        await id.disconnected;
        await id.destroy();
      })();
    }
  }

  async #cycle() {
    const [{ device, pd, cq }] = this.#ends;
    const id = new CmId({ device, ackTimeout });
    await id.resolveAddr({ host: SERVER, port: 7471 });
    await id.resolveRoute();
    await id.createQp(pd, { sendCq: cq, cap: CAP });
    await id.connect();
    await id.disconnect();
    await id.destroy();
  }

  /** Connects and disconnects a second, `together` at a time. */
  async run(count, together) {
    let left = count;
    const work = async () => {
      while (left-- > 0) await this.#cycle();
    };
    const start = performance.now();
    await Promise.all(Array.from({ length: together }, work));
    const seconds = (performance.now() - start) / 1000;
    return { messages: count, seconds, perSecond: count / seconds };
  }

  async close() {
    await this.#listener.destroy();
    await this.#serving;
    for (const { device } of this.#ends) await device.close();
  }
}
