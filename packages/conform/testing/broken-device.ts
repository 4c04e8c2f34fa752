/** The reference model, broken in one way: for testing the tester. */
import {
  CHECKS,
  type ConnectionOptions,
  decodePacket,
  encodePacket,
  type ModelDevice,
  type ModelPacket,
  type ModelQp,
  type SimPacket,
  type SimQp,
  type SimQpOptions,
  type SimRegion,
  type SimWindow,
} from '@node-roce/sim';
import { opcodeInfo } from '@node-roce/wire';
import type { AcceptFrame } from '../src/virtual/line.ts';
import { ListeningModel, REFUSALS, type Refusal } from '../src/virtual/listening-model.ts';

type ModelDeviceOptions = ConstructorParameters<typeof ModelDevice>[0];
export type ModelSrq = ReturnType<ModelDevice['createSrq']>;
type ModelQueuePair = ReturnType<ModelDevice['createQp']>;

/** A queue pair of the device, as a mutant sees it. */
export interface Victim {
  pair: ModelQueuePair;
  /** Of a reliable connection. */
  rc: ModelQp | undefined;
  /** The packet that is being taken, or that was taken last. */
  input: ModelPacket | undefined;
  /** For the mutant to keep things in. */
  notes: Record<string, unknown>;
  /** Sends a packet to the peer, before anything else. */
  inject(packet: Partial<ModelPacket>): void;
}

/** One way to break a device. Every member may be left out. */
export interface Mutant {
  /** The rules that have to see it. */
  seenBy: readonly string[];
  /** The name of a check of the model's responder that is left out. */
  without?: string;
  /** Handling of frames below the BTH. */
  accept?: AcceptFrame;
  /** Attributes of the connection. */
  attributes?(options: ConnectionOptions): Partial<ConnectionOptions>;
  model?: Partial<ModelDeviceOptions>;
  /** Access bits of a region. */
  access?(bits: number): number;
  /** A shared receive queue that was just made. */
  shared?(srq: ModelSrq): void;
  /** The type that a window has in truth. */
  windowType?: 1 | 2;
  keepsWindows?: boolean;
  keepsRegions?: boolean;
  keepsQueuePairs?: boolean;
  /** A packet as bytes, before anything was looked at. */
  arrive?(packet: SimPacket, device: BrokenDevice): SimPacket | undefined;
  /** A packet for a queue pair; undefined drops it. */
  hear?(packet: ModelPacket, victim: Victim): ModelPacket | undefined;
  /** After a packet was taken, and each time that something may be sent. */
  after?(victim: Victim, now: number): void;
  /** A packet that the device sends. */
  send?(packet: ModelPacket, victim: Victim): readonly ModelPacket[];
  /** Same, as bytes. */
  leave?(packet: SimPacket): SimPacket;
  /** The order of what is sent at one time. */
  order?(a: ModelPacket, b: ModelPacket): number;
  /** A message for the connection manager; undefined drops it. */
  hearMad?(mad: Uint8Array, device: BrokenDevice): Uint8Array | undefined;
  /** A message of the connection manager. */
  sendMad?(mad: Uint8Array, device: BrokenDevice): readonly Uint8Array[];
  /** The name of a reason to refuse a REQ that is left out. */
  accepts?: string;
  /** Asynchronous events that were raised. */
  events?(events: readonly SimEvent[]): SimEvent[];
  /** Counters, as they are reported. */
  counters?(counts: Readonly<Record<string, number>>): Readonly<Record<string, number>>;
  /** A queue pair that was just made. */
  made?(pair: ModelQueuePair, service: SimQpOptions['service']): void;
}

type SimEvent = ReturnType<ModelDevice['pollEvents']>[number];

const NO_DATA = new Uint8Array(0);

/** The model with one mutant in it. */
export class BrokenDevice extends ListeningModel {
  readonly victims: Victim[] = [];
  /** For a mutant of the connection manager to keep things in. */
  readonly notes: Record<string, unknown> = {};
  readonly #mutant: Mutant;
  #out: SimPacket[] = [];

  constructor(options: ModelDeviceOptions, mutant: Mutant) {
    super({ ...options, ...mutant.model });
    this.#mutant = mutant;
  }

  override refusals(): readonly Refusal[] {
    return Object.entries(REFUSALS)
      .filter(([name]) => name !== this.#mutant.accepts)
      .map(([, refusal]) => refusal);
  }

  protected override hearMad(mad: Uint8Array, source: Uint8Array, now: number): void {
    const heard = this.#mutant.hearMad === undefined ? mad : this.#mutant.hearMad(mad, this);
    if (heard !== undefined) super.hearMad(heard, source, now);
  }

  protected override sendMad(mad: Uint8Array): readonly Uint8Array[] {
    return this.#mutant.sendMad?.(mad, this) ?? super.sendMad(mad);
  }

  override createQp(options: SimQpOptions): ModelQueuePair {
    const pair = super.createQp(options);
    const connect = pair.connect.bind(pair);
    let peerQpn = 0;
    pair.connect = (peer, attributes) => {
      peerQpn = peer.qpn;
      connect(peer, { ...attributes, ...this.#mutant.attributes?.(attributes) });
    };
    const inject = (packet: Partial<ModelPacket>) => {
      const whole = { ...blank(peerQpn), ...packet };
      this.#out.push(this.#simPacket(encodePacket(whole), this.#peerGid));
    };
    const rcOf = () => (options.service === 'RC' ? pair.rc : undefined);
    this.victims.push({
      pair,
      get rc() {
        return rcOf();
      },
      input: undefined,
      notes: {},
      inject,
    });
    this.#mutant.made?.(pair, options.service);
    return pair;
  }

  override createSrq(): ModelSrq {
    const srq = super.createSrq();
    this.#mutant.shared?.(srq);
    return srq;
  }

  override counters(): Readonly<Record<string, number>> {
    const counts = super.counters();
    return this.#mutant.counters?.(counts) ?? counts;
  }

  override pollEvents(): SimEvent[] {
    const events = super.pollEvents();
    return this.#mutant.events?.(events) ?? events;
  }

  override destroyQp(qp: SimQp): void {
    if (!this.#mutant.keepsQueuePairs) super.destroyQp(qp);
  }

  override deregister(region: SimRegion): void {
    if (!this.#mutant.keepsRegions) super.deregister(region);
  }

  override allocWindow(type: 1 | 2): SimWindow {
    return super.allocWindow(this.#mutant.windowType ?? type);
  }

  override freeWindow(window: SimWindow): void {
    if (!this.#mutant.keepsWindows) super.freeWindow(window);
  }

  override register(bytes: Uint8Array<ArrayBuffer>, access: number): SimRegion {
    return super.register(bytes, this.#mutant.access?.(access) ?? access);
  }

  override receive(packets: SimPacket[], now: number): void {
    const first = this.#out.length;
    for (const packet of packets) this.#receiveOne(packet, now);
    const { order } = this.#mutant;
    if (order === undefined) return;
    const sorted = this.#out.splice(first).sort((a, b) => order(modelOf(a)!, modelOf(b)!));
    this.#out.push(...sorted);
  }

  #receiveOne(arrived: SimPacket, now: number): void {
    const mutant = this.#mutant;
    this.#peerGid = arrived.source;
    const packet = mutant.arrive === undefined ? arrived : mutant.arrive(arrived, this);
    if (packet === undefined) return;
    const model = modelOf(packet);
    const victim = this.victims.find(({ pair }) => pair.info.qpn === model?.destQpn);
    if (model === undefined || victim === undefined || packet.corrupt) {
      super.receive([packet], now);
      return;
    }
    victim.input = model;
    const heard = mutant.hear === undefined ? model : mutant.hear(model, victim);
    if (heard !== undefined) {
      super.receive(
        [{ ...packet, bytes: mutant.hear === undefined ? packet.bytes : encodePacket(heard) }],
        now,
      );
      mutant.after?.(victim, now);
    }
    this.#collect(now);
    victim.input = undefined;
  }

  #peerGid: Uint8Array = this.gid;

  #simPacket(bytes: Uint8Array, destination: Uint8Array): SimPacket {
    return { bytes, source: this.gid, destination, trafficClass: 0, sourcePort: 0xc000, corrupt: false };
  }

  /** Takes what the model sends, and spoils it. */
  #collect(now: number): void {
    for (const packet of super.transmit(now)) {
      const model = modelOf(packet);
      const victim =
        this.victims.find(({ pair }) => pair.connectedTo === model?.destQpn) ?? this.victims.at(-1);
      const { send } = this.#mutant;
      if (model === undefined || victim === undefined || send === undefined) {
        this.#leave(packet);
        continue;
      }
      for (const sent of send(model, victim)) this.#leave({ ...packet, bytes: encodePacket(sent) });
    }
  }

  #leave(packet: SimPacket): void {
    this.#out.push(this.#mutant.leave?.(packet) ?? packet);
  }

  override transmit(now: number): SimPacket[] {
    for (const victim of this.victims) if (isConnected(victim)) this.#mutant.after?.(victim, now);
    this.#collect(now);
    return this.#out.splice(0);
  }
}

const isConnected = ({ pair }: Victim): boolean => pair.state !== 'RESET';

const blank = (destQpn: number): ModelPacket => ({
  opcode: 0x11,
  destQpn,
  psn: 0,
  ackReq: false,
  solicited: false,
  pkey: 0xffff,
  aeth: { syndrome: 0x1f, msn: 0 },
  payload: NO_DATA,
});

function modelOf({ bytes }: SimPacket): ModelPacket | undefined {
  const decoded = decodePacket(bytes);
  return decoded.ok ? decoded.packet : undefined;
}

export const isRequest = ({ opcode }: ModelPacket): boolean => opcodeInfo(opcode)?.isRequest ?? false;

/** Leaves out a check of the model while `play` runs. */
export async function withoutCheck<T>(name: string | undefined, play: () => Promise<T>): Promise<T> {
  const checks = CHECKS as unknown as { name: string }[];
  const at = checks.findIndex((check) => check.name === name);
  if (name === undefined) return play();
  if (at < 0) throw new Error(`the model has no check ${name}`);
  const [removed] = checks.splice(at, 1);
  try {
    return await play();
  } finally {
    checks.splice(at, 0, removed);
  }
}
