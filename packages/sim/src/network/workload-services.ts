/**
 * Every service at once between two devices: reliable connections with receives of their own and on an SRQ, with windows;
 * UC and UD, alone and on an SRQ; a multicast group. Each is a lane of its own, in both directions; they share the
 * devices, the SRQs and the wire.
 */
import { bthOpcode, gidEquals, gidFromText, Opcode, type Random } from '@node-roce/wire';
import { grhArea } from '../model/grh.ts';
import { MULTICAST_QPN } from '../model/multicast.ts';
import { decodePacket, type ModelPacket } from '../model/packet.ts';
import type { ConnectionOptions, SimDevice, SimQp, SimSrq } from './endpoint.ts';
import type { Network, TracedPacket } from './network.ts';
import { require } from './workload-checks.ts';

import { Flow, flowEnd, type Placements, placementsOf, shifted } from './workload-flow.ts';
import { ARENA_BYTES } from './workload-layout.ts';
import { SharedReceives } from './workload-receives.ts';
import { UNRELIABLE_BYTES, UnreliableFlow, UnreliableReceives } from './workload-unreliable.ts';
import { isWindowRequest, WindowKeeper } from './workload-windows.ts';

const LANES = [
  { service: 'RC', shared: false },
  { service: 'RC', shared: true },
  { service: 'RC', shared: true },
  { service: 'UC', shared: false },
  { service: 'UC', shared: true },
  { service: 'UD', shared: false },
  { service: 'UD', shared: true },
] as const;
type Lane = (typeof LANES)[number];

const RELIABLE = LANES.filter(({ service }) => service === 'RC').length;
/** Both directions of each lane have a part of their own; the SRQs two more, each on its own device. */
export const SERVICES_ARENA_BYTES =
  (RELIABLE + 1) * ARENA_BYTES + (2 * (LANES.length - RELIABLE) + 1) * UNRELIABLE_BYTES;

const QKEY = 0x0bad_cafe;
const GROUP = gidFromText('239.7.7.7');

export interface ServicesOptions {
  network: Network;
  a: SimDevice;
  b: SimDevice;
  connection: ConnectionOptions;
  /** Requests of each direction of each lane. */
  count: number;
  random: Random;
  /** The network keeps the order and brings nothing twice: what asks again for a READ comes before the window goes. */
  inOrder: boolean;
}

/** A device, and the objects that lanes share on it. */
interface Side {
  device: SimDevice;
  reliableSrq: SimSrq;
  reliableReceives: SharedReceives;
  unreliableSrq: SimSrq;
  unreliableReceives: UnreliableReceives;
  qps: SimQp[];
  limitsSet: number;
  limitsReached: number;
}

interface Direction {
  from: Side;
  to: Side;
  lane: number;
  flow: Flow | UnreliableFlow;
  /** Of the receiving side: bound through its queue pair, used by the sender. */
  keeper?: WindowKeeper;
}

/** A workload of RC, UC and UD queue pairs with SRQs and windows. */
export class ServicesWorkload {
  readonly #options: ServicesOptions;
  readonly #sides: [Side, Side];
  readonly #directions: Direction[];
  #traced = 0;

  constructor(options: ServicesOptions) {
    this.#options = options;
    const { a, b, random, connection } = options;
    for (const { arena } of [a, b]) for (let i = 0; i < arena.length; i++) arena[i] = random.next();
    this.#sides = [this.#side(a), this.#side(b)];
    const [left, right] = this.#sides;
    LANES.forEach((_, i) => {
      left.qps[i].connect(right.qps[i].info, connection);
      right.qps[i].connect(left.qps[i].info, connection);
    });
    for (const { device, qps } of this.#sides) {
      for (const [i, { service }] of LANES.entries()) if (service === 'UD') device.attach(GROUP, qps[i]);
    }
    this.#directions = LANES.flatMap((_, lane) => [
      this.#direction(left, right, lane, 0),
      this.#direction(right, left, lane, 1),
    ]);
    this.#post();
  }

  #side(device: SimDevice): Side {
    const { random } = this.#options;
    const [reliableSrq, unreliableSrq] = [device.createSrq(), device.createSrq()];
    const reliableAt = RELIABLE * ARENA_BYTES;
    const unreliableAt = SERVICES_ARENA_BYTES - UNRELIABLE_BYTES;
    const qps = LANES.map(({ service, shared }) => {
      const srq = service === 'RC' ? reliableSrq : unreliableSrq;
      const psn = random.chance(0.3) ? 0xff_fff0 : random.between(0, 0xff_ffff);
      return device.createQp({ service, psn, qkey: QKEY, ...(shared ? { srq } : {}) });
    });
    const post = shifted(reliableAt, (receive) => reliableSrq.postReceive(receive));
    const reliableReceives = new SharedReceives({
      arena: device.arena.subarray(reliableAt),
      postReceive: post,
    });
    const unreliableReceives = new UnreliableReceives(
      device.arena,
      unreliableAt,
      (receive) => unreliableSrq.postReceive(receive),
      true,
    );
    return {
      device,
      reliableSrq,
      reliableReceives,
      unreliableSrq,
      unreliableReceives,
      qps,
      limitsSet: 0,
      limitsReached: 0,
    };
  }

  #direction(from: Side, to: Side, lane: number, number: 0 | 1): Direction {
    const { count, random, inOrder } = this.#options;
    const { service, shared } = LANES[lane];
    if (service === 'RC') {
      const at = lane * ARENA_BYTES;
      const [sender, receiver] = [
        flowEnd(from.device, from.qps[lane], at),
        flowEnd(to.device, to.qps[lane], at),
      ];
      const keeper = new WindowKeeper(to.device, receiver.postSend, inOrder);
      const receives = shared ? to.reliableReceives : undefined;
      const flow = new Flow({ from: sender, to: receiver, count, random, receives, windows: keeper });
      return { from, to, lane, flow, keeper };
    }
    const at = (RELIABLE + 1) * ARENA_BYTES + (2 * (lane - RELIABLE) + number) * UNRELIABLE_BYTES;
    const toArena = to.device.arena;
    const own = (post: SimQp) =>
      new UnreliableReceives(toArena, at, (receive) => post.postReceive(receive), false);
    const flow = new UnreliableFlow({
      service,
      from: from.qps[lane],
      fromArena: from.device.arena,
      to: to.qps[lane],
      toArena,
      at,
      count,
      random,
      receives: shared ? to.unreliableReceives : own(to.qps[lane]),
      ...(service === 'UD' ? { group: GROUP } : {}),
    });
    return { from, to, lane, flow };
  }

  #post(): void {
    for (const { flow } of this.#directions) flow.post();
    for (const side of this.#sides) this.#armLimit(side);
  }

  /** One event for each time that the limit was set, and it has come once so few can be waiting. */
  #armLimit(side: Side): void {
    side.limitsReached += side.device.pollEvents().filter((event) => event === 'SRQ_LIMIT_REACHED').length;
    const { limitsSet, limitsReached, reliableReceives } = side;
    require(limitsReached <= limitsSet, 'a limit was reached twice', { limitsSet, limitsReached });
    const low = reliableReceives.outstanding < LIMIT;
    require(!low || limitsReached === limitsSet, 'a limit was passed in silence', {
      limitsSet,
      limitsReached,
    });
    if (limitsReached === limitsSet && reliableReceives.outstanding > LIMIT + 4) {
      side.reliableSrq.setLimit(LIMIT);
      side.limitsSet++;
    }
  }

  /** Every message that arrived whole, by lane: for tests that want to know that there were some. */
  get delivered(): Record<Lane['service'], number> {
    const delivered = { RC: 0, UC: 0, UD: 0 };
    for (const { flow, lane } of this.#directions) {
      if (flow instanceof UnreliableFlow) delivered[LANES[lane].service] += flow.delivered;
      else delivered.RC += flow.expected.length;
    }
    return delivered;
  }

  get placements(): Placements {
    return placementsOf(this.#directions.flatMap(({ flow }) => (flow instanceof Flow ? flow : [])));
  }

  /** Limit events of both SRQs that have a limit. */
  get limitsReached(): number {
    return this.#sides[0].limitsReached + this.#sides[1].limitsReached;
  }

  /**
   * To be called after each step: checks what completed, posts more. True once all was sent and all of the
   * reliable lanes is done; what unreliable ones have sent may still be under way.
   * @throws Error when something happened that must not
   */
  step(): boolean {
    this.#look();
    for (const { from, to, lane, flow, keeper } of this.#directions) {
      const sends = from.qps[lane].pollSend();
      // The windows that the sender bound are those of the other direction.
      const reverse = this.#directions.find((d) => d.lane === lane && d.from === to)!;
      for (const completion of sends) {
        if (isWindowRequest(completion.wrId)) reverse.keeper!.completed(completion);
      }
      flow.poll(sends, to.qps[lane].pollReceive());
      if (flow instanceof Flow) {
        require(flow.failure === undefined, 'a connection ended', {
          lane,
          status: flow.failure,
          keeper: keeper?.idle,
        });
      }
    }
    if (this.#directions.every(({ flow }) => flow.done)) return true;
    this.#post();
    return false;
  }

  /** Shows the unreliable flows the packets that were sent and that arrived since the last step. */
  #look(): void {
    const { trace } = this.#options.network;
    for (; this.#traced < trace.length; this.#traced++) {
      const traced = trace[this.#traced];
      if (traced.corrupt || bthOpcode(traced.bytes, 0) === Opcode.CNP) continue;
      const decoded = decodePacket(traced.bytes);
      if (!decoded.ok) throw new Error(decoded.reason);
      if (traced.event === 'sent') this.#sent(traced, decoded.packet);
      else this.#arrived(traced, decoded.packet);
    }
  }

  #sent({ source }: TracedPacket, packet: ModelPacket): void {
    for (const { from, to, lane, flow } of this.#directions) {
      if (!(flow instanceof UnreliableFlow) || !gidEquals(from.device.gid, source)) continue;
      const isOurs =
        packet.deth === undefined
          ? packet.destQpn === to.qps[lane].info.qpn
          : packet.deth.srcQpn === from.qps[lane].info.qpn;
      if (isOurs) flow.sent(packet);
    }
  }

  #arrived({ bytes, source, destination, trafficClass }: TracedPacket, packet: ModelPacket): void {
    const grh = grhArea({ source, destination, trafficClass, hopLimit: 64 }, bytes.length);
    for (const { from, to, lane, flow } of this.#directions) {
      if (!(flow instanceof UnreliableFlow) || !gidEquals(from.device.gid, source)) continue;
      const { qpn } = to.qps[lane].info;
      const toGroup = packet.destQpn === MULTICAST_QPN && LANES[lane].service === 'UD';
      if (packet.destQpn === qpn || toGroup) flow.arrived(packet, grh);
    }
  }

  /** At the very end, when nothing is under way any more. @throws Error */
  finish(): void {
    this.step();
    for (const { flow } of this.#directions) flow.checkMemory();
  }
}

const LIMIT = 3;
