/** The dialogue over a connection of the connection manager: each message is a SEND. */
import { setTimeout as sleep } from 'node:timers/promises';
import { CmId, RefusedError } from '@node-roce/rdmacm';
import type {
  CompletionQueue,
  Device,
  MemoryRegion,
  ProtectionDomain,
  RoceError,
} from '@node-roce/verbs-api';
import { Endings } from '../endings.ts';
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

/** A call was refused since no program listens at the port. */
export const nobodyListens = (error: unknown, portSpace: keyof typeof NOBODY_LISTENS): boolean =>
  error instanceof RefusedError && error.status === NOBODY_LISTENS[portSpace];

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
      if (!nobodyListens(error, portSpace === 'UDP' ? 'UDP' : 'TCP') || tries === TRIES) throw error;
      const { signal } = patience;
      await sleep(TRY_EVERY, undefined, { signal }).catch(() => signal.throwIfAborted());
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
  /** Receives that have a message, in the order in which these came. */
  readonly #messages: { slot: number; bytes: number }[] = [];
  /** Why no more messages come. */
  #end: RoceError | undefined;
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
    const equipment = await equip(device);
    return equipment.endings.unless(async () => {
      const { equipment: channel } = await connectId(
        () => new CmId({ device }),
        destination,
        (id) => CmChannel.#over(id, equipment, true, patience),
        PARAMETERS,
        patience,
      );
      return channel;
    });
  }

  /** Takes the request of a client, for which it waits without limit. */
  static async accept(listener: CmId, patience: Patience): Promise<CmChannel> {
    const { signal } = patience;
    const equipment = await equip(listener.device);
    return equipment.endings.unless(async () => {
      const id = await listener.getRequest({ signal });
      const channel = await CmChannel.#over(id, equipment, false, patience);
      await within(patience, 'the client did not end its call', (until) =>
        id.accept(PARAMETERS, { signal: until }),
      );
      return channel;
    });
  }

  static async #over(
    id: CmId,
    equipment: Equipment,
    isClient: boolean,
    patience: Patience,
  ): Promise<CmChannel> {
    const { pd, cq, endings } = equipment;
    endings.add(() => id.destroy());
    await id.createQp(pd, {
      sendCq: cq,
      cap: { maxSendWr: 4, maxRecvWr: SLOTS, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 },
    });
    return new CmChannel(id, equipment, isClient, patience);
  }

  get ended(): boolean {
    return this.#end !== undefined;
  }

  /** @param cause of a receive that failed */
  #leave(cause?: RoceError): void {
    this.#end ??=
      cause === undefined || isFlushed(cause)
        ? broken('the peer ended the connection of the dialogue')
        : broken(`a message of the peer can not be received: ${cause.message}`, cause);
    this.#changes.notify();
  }

  #receive(slot: number): void {
    const { qp } = this.#id;
    const { receives } = this.#equipment;
    const element = { mr: receives, offset: slot * SLOT, length: SLOT };
    qp!.receive(element).then(
      ({ byteLen }) => {
        this.#messages.push({ slot, bytes: byteLen });
        this.#changes.notify();
      },
      // Wakes what waits for a message.
      (error) => this.#leave(error),
    );
  }

  async write(message: Uint8Array): Promise<void> {
    const { sends } = this.#equipment;
    sends.bytes(0, message.length).set(message);
    const stop = new AbortController();
    let outcome: { error?: RoceError } | undefined;
    const settle = (error?: RoceError) => {
      outcome = { error };
      this.#changes.notify();
    };
    this.#id
      .qp!.send({ mr: sends, length: message.length }, { signal: stop.signal })
      .then(() => settle(), settle);
    try {
      // A peer that posts no receive answers with RNR NAKs for ever.
      const { error } = await this.#changes.until(() => outcome, this.#patience);
      if (error !== undefined) throw (isFlushed(error) && this.#end) || error;
    } finally {
      stop.abort();
    }
  }

  async read(bytes: number): Promise<Buffer> {
    return this.readOneOf([bytes]);
  }

  async readOneOf(sizes: readonly number[]): Promise<Buffer> {
    const { slot, bytes } = await this.#changes.until(() => {
      const [first] = this.#messages;
      if (first === undefined && this.#end) throw this.#end;
      return first;
    }, this.#patience);
    this.#messages.shift();
    const message = Buffer.from(this.#equipment.receives.bytes(slot * SLOT, bytes));
    // Not earlier: a peer has no more messages on the way than there are slots.
    this.#receive(slot);
    if (!sizes.includes(message.length))
      throw broken(`the peer sent a message of ${message.length} bytes: expected ${sizes.join(' or ')}`);
    return message;
  }

  async untilEnded(milliseconds: number): Promise<void> {
    const patience = { timeout: milliseconds / 1000, signal: this.#patience.signal };
    await this.#changes.until(() => this.ended || undefined, patience).catch(() => {});
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
    if (this.isClient && !this.ended) await bounded(this.#id.disconnect());
    await this.#equipment.endings.run();
  }
}

/** The request was not executed, since its connection had ended. */
const isFlushed = ({ attribute }: RoceError) => attribute === 'WR_FLUSH_ERR';

/** ms that a peer may take to agree to the end. */
const DISCONNECT_WITHIN = 2000;

/** Waits for a disconnection, but not for a peer that is gone. */
export async function bounded(ending: Promise<void>, milliseconds = DISCONNECT_WITHIN): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, milliseconds);
  });
  await Promise.race([ending.catch(() => {}), limit]);
  clearTimeout(timer);
}

interface Equipment {
  pd: ProtectionDomain;
  cq: CompletionQueue;
  sends: MemoryRegion;
  receives: MemoryRegion;
  /** Of these, and of the ids that use them. */
  endings: Endings;
}

async function equip(device: Device): Promise<Equipment> {
  const endings = new Endings();
  return endings.unless(async () => {
    const pd = await device.allocPd();
    endings.add(() => pd.dealloc());
    const cq = await device.createCq(4 * SLOTS);
    endings.add(() => cq.destroy());
    const memory = async (bytes: number) => {
      const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(bytes)));
      endings.add(() => mr.deregister());
      return mr;
    };
    return { pd, cq, sends: await memory(SLOT), receives: await memory(SLOT * SLOTS), endings };
  });
}
