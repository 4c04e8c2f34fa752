/** The dialogue over a connection of the connection manager: each message is a SEND. */
import { CmId, RefusedError } from '@node-roce/rdmacm';
import type { CompletionQueue, Device, MemoryRegion, ProtectionDomain } from '@node-roce/verbs-api';
import { broken } from '../errors.ts';
import type { Channel, Patience } from './channel.ts';
import { Changes, within } from './waiting.ts';

/** Room for a message; the longest is the structure of parameters. */
const SLOT = 512;
/** Receives that wait: the peer has one message under way at a time. */
const SLOTS = 4;
/** Of the control connection: no READs, and retries for ever. */
const PARAMETERS = { responderResources: 0, initiatorDepth: 0, retryCount: 7, rnrRetryCount: 7 } as const;
/** A server listens anew for its data connections: perftest asks as often, in these steps of ms. */
const TRIES = 10;
const TRY_EVERY = 100;
/** Nobody listens: `CmRejReason.INVALID_SERVICE_ID`, and `CmSidrStatus.UNSUPPORTED` of a datagram service. */
const NOBODY_LISTENS = { TCP: 8, UDP: 1 } as const;

export interface Destination {
  host: string;
  port: number;
  /** Our address. */
  source: string;
}

/** Calls an id's peer, anew while nobody listens. `equip` makes the queue pair of an id. */
export async function connectId<T>(
  make: () => CmId,
  { host, port, source }: Destination,
  equip: (id: CmId) => Promise<T>,
  parameters: { responderResources: number; initiatorDepth: number },
  patience: Patience,
): Promise<{ id: CmId; equipment: T }> {
  for (let tries = 1; ; tries++) {
    const id = make();
    try {
      const equipment = await within(patience, `no connection to ${host}, port ${port},`, async (signal) => {
        await id.resolveAddr({ host, port, source }, { signal });
        await id.resolveRoute();
        const made = await equip(id);
        await id.connect({ ...PARAMETERS, ...parameters }, { signal });
        return made;
      });
      return { id, equipment };
    } catch (error) {
      const { portSpace } = id;
      await id.destroy();
      const early = NOBODY_LISTENS[portSpace === 'UDP' ? 'UDP' : 'TCP'];
      const isEarly = error instanceof RefusedError && error.status === early;
      if (!isEarly || tries === TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, TRY_EVERY));
    }
  }
}

/** One end of a control connection, read message by message. */
export class CmChannel implements Channel {
  readonly isClient: boolean;
  readonly #id: CmId;
  readonly #equipment: Equipment;
  readonly #patience: Patience;
  readonly #changes = new Changes();
  readonly #messages: Buffer[] = [];
  #ended = false;
  #destroying: Promise<void> | undefined;

  private constructor(id: CmId, equipment: Equipment, isClient: boolean, patience: Patience) {
    this.isClient = isClient;
    this.#id = id;
    this.#equipment = equipment;
    this.#patience = patience;
    for (let slot = 0; slot < SLOTS; slot++) this.#receive(slot);
    void id.disconnected.then(() => this.#leave());
  }

  static async call(device: Device, destination: Destination, patience: Patience): Promise<CmChannel> {
    let channel: CmChannel | undefined;
    await connectId(
      () => new CmId({ device }),
      destination,
      async (id) => {
        channel = new CmChannel(id, await equip(id), true, patience);
      },
      PARAMETERS,
      patience,
    );
    return channel!;
  }

  /** Takes the request of a client. */
  static async accept(id: CmId, patience: Patience): Promise<CmChannel> {
    const channel = new CmChannel(id, await equip(id), false, patience);
    await within(patience, 'the client did not end its call', (signal) => id.accept(PARAMETERS, { signal }));
    return channel;
  }

  get ended(): boolean {
    return this.#ended;
  }

  #leave(): void {
    this.#ended = true;
    this.#changes.notify();
  }

  #receive(slot: number): void {
    const { qp } = this.#id;
    const { receives } = this.#equipment;
    const element = { mr: receives, offset: slot * SLOT, length: SLOT };
    qp!.receive(element).then(
      ({ byteLen }) => {
        this.#messages.push(Buffer.from(receives.bytes(slot * SLOT, byteLen)));
        this.#receive(slot);
        this.#changes.notify();
      },
      // The connection ended: wakes what waits for a message.
      () => this.#leave(),
    );
  }

  async write(message: Uint8Array): Promise<void> {
    const { sends } = this.#equipment;
    sends.bytes(0, message.length).set(message);
    const { signal } = this.#patience;
    await this.#id.qp!.send({ mr: sends, length: message.length }, { signal });
  }

  async read(bytes: number): Promise<Buffer> {
    return this.readOneOf([bytes]);
  }

  async readOneOf(sizes: readonly number[]): Promise<Buffer> {
    const message = await this.#changes.until(() => {
      const [first] = this.#messages;
      if (first === undefined && this.#ended) throw broken('the peer ended the connection of the dialogue');
      return first;
    }, this.#patience);
    this.#messages.shift();
    if (!sizes.includes(message.length))
      throw broken(`the peer sent a message of ${message.length} bytes: expected ${sizes.join(' or ')}`);
    return message;
  }

  async untilEnded(milliseconds: number): Promise<void> {
    const patience = { timeout: milliseconds / 1000, signal: this.#patience.signal };
    await this.#changes.until(() => this.#ended || undefined, patience).catch(() => {});
  }

  /** The client disconnects; a server waits for that. */
  async close(): Promise<void> {
    if (!this.isClient) await this.untilEnded(2000);
    await this.destroy();
  }

  destroy(): Promise<void> {
    this.#destroying ??= this.#destroy();
    return this.#destroying;
  }

  async #destroy(): Promise<void> {
    const { cq, pd, sends, receives } = this.#equipment;
    if (this.isClient && !this.#ended) await bounded(this.#id.disconnect());
    await this.#id.destroy();
    await cq.destroy();
    await sends.deregister();
    await receives.deregister();
    await pd.dealloc();
  }
}

/** ms that a peer may take to agree to the end. */
const DISCONNECT_WITHIN = 2000;

/** Waits for a disconnection, but not for a peer that is gone. */
export async function bounded(ending: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, DISCONNECT_WITHIN);
  });
  await Promise.race([ending.catch(() => {}), limit]);
  clearTimeout(timer);
}

interface Equipment {
  pd: ProtectionDomain;
  cq: CompletionQueue;
  sends: MemoryRegion;
  receives: MemoryRegion;
}

async function equip(id: CmId): Promise<Equipment> {
  const pd = await id.device.allocPd();
  const cq = await id.device.createCq(4 * SLOTS);
  await id.createQp(pd, {
    sendCq: cq,
    cap: { maxSendWr: 4, maxRecvWr: SLOTS, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 },
  });
  const memory = (bytes: number) => new Uint8Array(new SharedArrayBuffer(bytes));
  const sends = await pd.registerMr(memory(SLOT));
  const receives = await pd.registerMr(memory(SLOT * SLOTS));
  return { pd, cq, sends, receives };
}
