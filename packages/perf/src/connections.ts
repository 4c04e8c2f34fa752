/** The data connections of a test over the connection manager (`create_rdma_cm_connection`). */
import { CmId } from '@node-roce/rdmacm';
import { type Device, GRH_BYTES, type MemoryRegion, type QueuePair } from '@node-roce/verbs-api';
import type { Patience } from './channel/channel.ts';
import { bounded, connectId, type Destination, nobodyListens } from './channel/cm.ts';
import { within } from './channel/waiting.ts';
import { Endings } from './endings.ts';
import { broken } from './errors.ts';
import type { Endpoint } from './measure/endpoint.ts';
import type { Side } from './measure/requests.ts';
import { fetches, type Plan } from './plan.ts';

/** Bytes of the datagram by which a client announces its queue pair. */
const INTRODUCTION = 4;
/** ms that a server waits for its client to disconnect first, as clients of perftest 4.5 do. Later ones leave it to the server. */
const GOODBYE_WITHIN = 1000;

/** Datagrams go both ways, so the server has to learn where the client is. */
const introduces = ({ service, measure, bidirectional }: Plan) =>
  service === 'UD' && (measure === 'lat' || bidirectional);

/** READs and atomics, both ways alike; 0 of other tests. */
const depths = (plan: Plan) => {
  const depth = fetches(plan) ? plan.outReads : 0;
  return { responderResources: depth, initiatorDepth: depth };
};

const optionsOf = (device: Device, { service, trafficClass, ackTimeout }: Plan) => ({
  ...{ device, trafficClass, ackTimeout },
  portSpace: service === 'UD' ? ('UDP' as const) : ('TCP' as const),
});

/** Connections of one side: made all at once, and ended together. */
export abstract class CmConnections {
  protected readonly ids: CmId[] = [];
  protected readonly device: Device;
  protected readonly patience: Patience;

  constructor(device: Device, patience: Patience) {
    this.device = device;
    this.patience = patience;
  }

  /** Gets ready for the peer's calls, before the barrier that lets it begin. */
  async prepare(_plan: Plan): Promise<void> {}

  /** Adds all queue pairs to the endpoint, connected. */
  abstract connect(endpoint: Endpoint, plan: Plan): Promise<void>;

  /** Ends the connections in order. */
  async disconnect(): Promise<void> {
    await Promise.all(this.ids.map((id) => this.end(id)));
    await this.destroy();
  }

  protected async end(id: CmId): Promise<void> {
    if (id.portSpace === 'TCP' && id.state === 'CONNECTED') await bounded(id.disconnect());
  }

  /** Ends the remaining ones. */
  async destroy(): Promise<void> {
    await Promise.all(this.ids.splice(0).map((id) => id.destroy()));
  }
}

/** The data connections of a client: it calls for each of them. */
export class ClientConnections extends CmConnections {
  readonly #destination: Destination;

  constructor(device: Device, patience: Patience, destination: Destination) {
    super(device, patience);
    this.#destination = destination;
  }

  override async connect(endpoint: Endpoint, plan: Plan): Promise<void> {
    for (let i = 0; i < plan.qps; i++) {
      const { id, equipment: qp } = await this.#call(endpoint, plan);
      this.ids.push(id);
      const side = endpoint.add(qp);
      if (plan.service !== 'UD') continue;
      side.ud = id.peer!;
      if (introduces(plan)) await introduce(endpoint, qp, id, this.patience);
    }
  }

  async #call(endpoint: Endpoint, plan: Plan): Promise<{ id: CmId; equipment: QueuePair }> {
    try {
      return await connectId(
        () => new CmId(optionsOf(this.device, plan)),
        this.#destination,
        (made) => endpoint.makeQp((pd, init) => made.createQp(pd, init)),
        depths(plan),
        this.patience,
      );
    } catch (error) {
      // The server is there: the dialogue runs.
      if (!nobodyListens(error, plan.service === 'UD' ? 'UDP' : 'TCP')) throw error;
      throw broken(
        'the server takes no connections of this test: do both sides have the same options, -c among them?',
        error,
      );
    }
  }
}

/** The data connections of a server: it takes the client's calls. */
export class ServerConnections extends CmConnections {
  readonly #port: number;
  readonly #address: string;
  /** The listener of the control connection. */
  readonly #control: CmId;
  /** That of the data connections. It takes the place of the other: an accepted id has the options of its listener. */
  #listener: CmId | undefined;

  constructor(device: Device, patience: Patience, address: string, port: number, control: CmId) {
    super(device, patience);
    this.#address = address;
    this.#port = port;
    this.#control = control;
  }

  override async prepare(plan: Plan): Promise<void> {
    await this.#control.destroy();
    this.#listener = new CmId(optionsOf(this.device, plan));
    await this.#listener.listen({ address: this.#address, port: this.#port });
  }

  override async connect(endpoint: Endpoint, plan: Plan): Promise<void> {
    for (let i = 0; i < plan.qps; i++)
      await within(
        this.patience,
        `the client did not make connection ${i + 1} of ${plan.qps} as this side expects it (do both have the same options?)`,
        (signal) => this.#accept(endpoint, plan, signal),
      );
  }

  async #accept(endpoint: Endpoint, plan: Plan, signal: AbortSignal): Promise<void> {
    const id = await this.#listener!.getRequest({ signal });
    this.ids.push(id);
    const qp = await endpoint.makeQp((pd, init) => id.createQp(pd, init));
    const side = endpoint.add(qp);
    const accept = () => id.accept(depths(plan), { signal });
    if (introduces(plan)) side.ud = await introduction(endpoint, qp, accept, signal);
    else await accept();
  }

  override async destroy(): Promise<void> {
    try {
      await this.#listener?.destroy();
    } finally {
      await super.destroy();
    }
  }

  protected override async end(id: CmId): Promise<void> {
    if (id.portSpace !== 'TCP') return;
    await bounded(id.disconnected, GOODBYE_WITHIN);
    await super.end(id);
  }
}

/** Runs a call that needs a little memory. */
async function withScratch<T>(
  { pd }: Endpoint,
  bytes: number,
  call: (mr: MemoryRegion) => Promise<T>,
): Promise<T> {
  const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(bytes)));
  const endings = new Endings();
  endings.add(() => mr.deregister());
  return endings.after(() => call(mr));
}

/** Sends the number of our queue pair. */
function introduce(endpoint: Endpoint, qp: QueuePair, id: CmId, { signal }: Patience): Promise<void> {
  return withScratch(endpoint, INTRODUCTION, async (mr) => {
    await qp.send({ mr }, { immData: qp.qpNum, ud: id.peer!, signal });
  });
}

/** Waits for the number of the client's queue pair, with a receive that is posted before `accept`. */
function introduction(
  endpoint: Endpoint,
  qp: QueuePair,
  accept: () => Promise<void>,
  signal: AbortSignal,
): Promise<Side['ud']> {
  return withScratch(endpoint, GRH_BYTES + INTRODUCTION, async (mr) => {
    const arriving = qp.receive({ mr }, { signal });
    arriving.catch(() => {});
    await accept();
    const wc = await arriving;
    if (wc.immData === undefined)
      throw broken('the client announced no queue pair: its datagram has no immediate');
    const { attr } = await qp.query(['qkey']);
    const ah = await endpoint.pd.createAh(endpoint.device.addressFromWc(wc, mr.bytes(0, GRH_BYTES)));
    return { ah, remoteQpn: wc.immData, remoteQkey: attr.qkey! };
  });
}
