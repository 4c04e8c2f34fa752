/**
 * Stands before a simulated device and puts hostile packets among those that the network brings: real packets come one by one, each
 * right behind some that were made from it, or together, with a bad one in the middle.
 */
import type { EngineDevice, Network, Random, SimPacket } from '@node-roce/sim';
import { bthDestQp, bthOpcode, gidFromText, opcodeInfo, Transport } from '@node-roce/wire';
import { Bth } from './bth-offsets.ts';
import { FORGERIES, type Forgery, type Target } from './forgeries.ts';
import { mutatedCopy, mutatedRecord } from './mutations.ts';

export interface SiegeOptions {
  network: Network;
  random: Random;
  /** Hostile packets before each real one. */
  each: number;
  /** Makes one from the packet that is about to arrive, or thinks of none. */
  attack: Attack;
}

export type Attack = (target: Target, random: Random) => Forgery | undefined;

/** A forgery of any of these kinds; `kinds` counts them. */
export function forging(kinds: Map<string, number>, names: readonly string[]): Attack {
  const all = Object.entries(FORGERIES).filter(([name]) => names.includes(name));
  return (target, random) => {
    // Many kinds need a packet of some kind: another one, then.
    for (let tries = 0; tries < 4; tries++) {
      const [name, forge] = random.pick(all);
      const forgery = forge(target, random);
      if (!forgery) continue;
      kinds.set(name, (kinds.get(name) ?? 0) + 1);
      return forgery;
    }
    return undefined;
  };
}

const STRANGER = gidFromText('10.0.0.66');

/**
 * The packet changed on its way; or changed and given a right ICRC by somebody at another address; or the same with a
 * recorded packet of the real rxe.
 */
export function mutating(recorded: readonly Uint8Array[]): Attack {
  return (target, random) => {
    const { packet, info } = target;
    const kind = random.between(0, 3);
    if (kind < 2) {
      const copy = mutatedCopy(packet, random, false);
      // Only in what the ICRC does not cover: that is the packet itself.
      return (
        copy && (copy.corrupt ? { packet: copy, counter: 'icrcErrors' } : { packet: copy, arrives: true })
      );
    }
    // To UD who knows the Q_Key is no stranger.
    if (kind === 2 && info.transport === Transport.UD) return undefined;
    const forged =
      kind === 2 ? mutatedCopy(packet, random, true) : mutatedRecord(random.pick(recorded), packet, random);
    return forged && { packet: { ...forged, source: STRANGER } };
  };
}

/** Two devices under traffic of every kind while packets are forged and mutated. */
export class Siege {
  /** Hostile packets so far, and by how much each counter of the device has to have gone up for them. */
  packets = 0;
  readonly due = new Map<string, number>();
  readonly device: EngineDevice;
  readonly #options: SiegeOptions;
  readonly #qpns = new Set<number>();

  constructor(device: EngineDevice, options: SiegeOptions) {
    this.device = device;
    this.#options = options;
    const receive = device.receive.bind(device);
    const createQp = device.createQp.bind(device);
    device.createQp = (init) => {
      const qp = createQp(init);
      this.#qpns.add(qp.info.qpn);
      return qp;
    };
    device.receive = (packets, now) => {
      if (packets.length > 2 && options.random.chance(0.5)) {
        receive(this.#before(packets[0], now), now);
        receive(this.#withBadOne(packets), now);
        return;
      }
      // One at a time: so that what is forged is right but for one thing at the moment it arrives.
      for (const packet of packets) {
        receive(this.#before(packet, now), now);
        receive([packet.corrupt ? packet : this.#withReservedBits(packet)], now);
      }
    };
  }

  /** Packets that arrive together, which may be a run, with a copy of one of them in the middle whose ICRC is wrong. */
  #withBadOne(packets: readonly SimPacket[]): SimPacket[] {
    const at = this.#options.random.between(1, packets.length - 1);
    this.packets++;
    this.due.set('icrcErrors', (this.due.get('icrcErrors') ?? 0) + 1);
    return packets.toSpliced(at, 0, { ...packets[at], corrupt: true });
  }

  #before(packet: SimPacket, now: number): SimPacket[] {
    const { random, each, attack } = this.#options;
    const target = packet.corrupt ? undefined : this.#target(packet);
    if (!target) return [];
    const hostile: SimPacket[] = [];
    for (let i = 0; i < each; i++) {
      const forgery = attack(target, random);
      if (!forgery) continue;
      hostile.push(forgery.packet);
      if (forgery.counter) this.due.set(forgery.counter, (this.due.get(forgery.counter) ?? 0) + 1);
      if (forgery.arrives) this.#trace(forgery.packet, packet, now);
    }
    this.packets += hostile.length;
    return hostile;
  }

  #target(packet: SimPacket): Target | undefined {
    const info = opcodeInfo(bthOpcode(packet.bytes, 0));
    // Of a CNP nothing is looked at but the queue pair, so little can be forged from one.
    if (!info || info.transport === Transport.CNP) return undefined;
    const { adapter, groups } = this.device;
    const qpn = bthDestQp(packet.bytes, 0);
    const { rqPsn = 0, sqPsn = 0 } = this.#qpns.has(qpn) ? adapter.queryQp(qpn).attr : {};
    return { packet, info, expectedPsn: rqPsn, nextPsn: sqPsn, qpns: this.#qpns, groups };
  }

  /** The oracle reads the trace: there it stands before the packet that it came before. */
  #trace(packet: SimPacket, real: SimPacket, time: number): void {
    const { trace } = this.#options.network;
    const at = trace.findLastIndex(({ bytes, event }) => event === 'arrived' && bytes === real.bytes);
    trace.splice(at, 0, { ...packet, time, event: 'arrived' });
  }

  /** Memory that nobody may look at: FECN, BECN and both reserved fields; MigReq and partial membership too. */
  #withReservedBits(packet: SimPacket): SimPacket {
    const { random } = this.#options;
    if (!random.chance(0.3)) return packet;
    const bytes = packet.bytes.slice();
    bytes[Bth.CONGESTION] = random.next();
    bytes[Bth.ACK_REQ] |= random.next() & 0x7f;
    bytes[Bth.FLAGS] ^= random.next() & 0x40;
    bytes[Bth.PKEY] ^= random.next() & 0x80;
    return { ...packet, bytes };
  }
}
