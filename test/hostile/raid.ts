/**
 * Attacks of a process on the same network: send datagrams to its port, from an address of its own, or, on a
 * machine of its victim's or where nobody filters, from the peer's. The source port does not show that to the device.
 */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import {
  DEFAULT_PKEY,
  encodePacket,
  frameOf,
  type ModelPacket,
  type Random,
  type SimPacket,
} from '@node-roce/sim';
import type { QueuePair } from '@node-roce/verbs-api';
import {
  bthPsn,
  gidEquals,
  gidFromText,
  ICRC_BYTES,
  icrcV2,
  Opcode,
  opcodeInfo,
  psnDiff,
  setU16,
  Transport,
  writeIcrc,
} from '@node-roce/wire';
import { FORGERIES, type Target } from './forgeries.ts';
import { filled } from './marker.ts';
import { mutate } from './mutations.ts';
import { QKEY, type Site, type Station } from './site.ts';

/** IPv4 and UDP. */
const HEADERS = 28;
/** PSNs nearer than this may be the right ones by the time that the packet arrives. */
const NEAR = 10_000;
const ALL = Object.values(FORGERIES);

/** One side of the site: where it is, and who the others are to it. */
interface Victim {
  station: Station;
  address: string;
  gid: Uint8Array;
  /** A socket with the address of its peer, on another port. */
  impostor: Socket;
  peerGid: Uint8Array;
  qps: readonly QueuePair[];
  targets: Target[];
}

/** A device under attack by packets that are right in all but one thing. */
export class Raid {
  sent = 0;
  readonly #random: Random;
  readonly #port: number;
  readonly #recorded: readonly Uint8Array[];
  readonly #stranger: Socket;
  readonly #strangerGid: Uint8Array;
  readonly #victims: readonly Victim[];

  private constructor(options: RaidOptions, sockets: readonly Socket[]) {
    const { site, addresses, stranger, port, random, recorded } = options;
    this.#random = random;
    this.#port = port;
    this.#recorded = recorded;
    this.#stranger = sockets[2];
    this.#strangerGid = gidFromText(stranger);
    const gids = addresses.map((address) => gidFromText(address));
    this.#victims = [site.a, site.b].map((station, i) => ({
      station,
      address: addresses[i],
      gid: gids[i],
      impostor: sockets[1 - i],
      peerGid: gids[1 - i],
      qps: Object.values(site.pairs).map((pair) => pair[i]),
      targets: [],
    }));
  }

  static async begin(options: RaidOptions): Promise<Raid> {
    const sockets = [...options.addresses, options.stranger].map((address) =>
      createSocket('udp4').bind({ address, port: 0 }),
    );
    await Promise.all(sockets.map((socket) => once(socket, 'listening')));
    return new Raid(options, sockets);
  }

  /** Finds out the values that it could only guess: PSNs, keys, addresses. */
  async aim(): Promise<void> {
    for (const victim of this.#victims) {
      const qpns = new Set(victim.qps.map((qp) => qp.qpNum));
      const states = await Promise.all(victim.qps.map((qp) => qp.query()));
      victim.targets = victim.qps.flatMap((qp, i) => {
        const { rqPsn: expectedPsn = 0, sqPsn: nextPsn = 0 } = states[i].attr;
        return packetsTo(qp, expectedPsn, nextPsn, victim.station).map((model): Target => {
          const packet: SimPacket = {
            bytes: encodePacket(model),
            source: victim.peerGid,
            destination: victim.gid,
            trafficClass: 0,
            sourcePort: victim.impostor.address().port,
            corrupt: false,
          };
          return { packet, info: opcodeInfo(model.opcode)!, expectedPsn, nextPsn, qpns, groups: [] };
        });
      });
    }
  }

  /** Sends so many; most fail one check, the others are changed at random. Resolves when they are in the kernel's hands. */
  async send(count: number): Promise<void> {
    const sending: Promise<void>[] = [];
    while (sending.length < count) {
      const victim = this.#random.pick(this.#victims);
      const target = this.#random.pick(victim.targets);
      const datagram = this.#random.chance(0.5) ? this.#forge(victim, target) : this.#mutate(victim, target);
      if (!datagram) continue;
      const { socket, bytes } = datagram;
      sending.push(new Promise((resolve) => socket.send(bytes, this.#port, victim.address, () => resolve())));
    }
    await Promise.all(sending);
    this.sent += count;
  }

  #forge(victim: Victim, target: Target): Datagram | undefined {
    const forgery = this.#random.pick(ALL)(target, this.#random);
    if (!forgery) return undefined;
    const { packet } = forgery;
    // The traffic goes on: what is not the right PSN now may be it when the packet arrives.
    const base = target.info.isRequest ? target.expectedPsn : target.nextPsn;
    const psnMatters = forgery.counter === undefined || forgery.counter === 'staleResponses';
    if (psnMatters && target.info.transport === Transport.RC && packet.bytes.length >= 12) {
      if (Math.abs(psnDiff(bthPsn(packet.bytes, 0), base)) < NEAR) return undefined;
    }
    const socket = gidEquals(packet.source, victim.peerGid) ? victim.impostor : this.#stranger;
    return { socket, bytes: this.#datagram(packet, socket) };
  }

  /** A packet with a few bytes changed: with the ICRC it had, as of the peer; or with a right one, as of a stranger. */
  #mutate(victim: Victim, target: Target): Datagram | undefined {
    const random = this.#random;
    const recorded = random.chance(0.3);
    const bytes = recorded ? random.pick(this.#recorded) : target.packet.bytes;
    const packet = { ...target.packet, bytes };
    if (random.chance(0.5)) {
      const whole = this.#datagram(packet, victim.impostor);
      const changed = mutate(whole, 0, random);
      // A change of bytes that the ICRC does not cover has no effect.
      changed[changed.length - 1] ^= 1 + random.between(0, 200);
      return { socket: victim.impostor, bytes: changed };
    }
    // To UD who knows the Q_Key is no stranger.
    if (!recorded && target.info.transport === Transport.UD) return undefined;
    const changed = mutate(bytes, 0, random);
    return { socket: this.#stranger, bytes: this.#datagram({ ...packet, bytes: changed }, this.#stranger) };
  }

  /** The UDP payload: with the ICRC that belongs to this socket's address and port, or a wrong one. */
  #datagram(packet: SimPacket, socket: Socket): Uint8Array {
    const own = socket === this.#stranger;
    const source = own ? this.#strangerGid : packet.source;
    const frame = frameOf({ ...packet, source, sourcePort: socket.address().port });
    setU16(frame, HEADERS - 6, this.#port);
    const at = frame.length - ICRC_BYTES;
    const icrc = frame.length >= HEADERS + 12 + ICRC_BYTES ? icrcV2(frame, 0, at) : 0;
    writeIcrc(frame, at, (packet.corrupt ? icrc ^ 0x0100_0000 : icrc) >>> 0);
    return frame.subarray(HEADERS);
  }

  end(): void {
    for (const { impostor } of this.#victims) impostor.close();
    this.#stranger.close();
  }
}

export interface RaidOptions {
  site: Site;
  addresses: readonly [string, string];
  /** An address that belongs to nobody here. */
  stranger: string;
  port: number;
  random: Random;
  /** Recorded packets to make others from. */
  recorded: readonly Uint8Array[];
}

interface Datagram {
  socket: Socket;
  bytes: Uint8Array;
}

/** Packets that this queue pair would take now, if they came from its peer. */
function packetsTo(qp: QueuePair, expectedPsn: number, nextPsn: number, { mr }: Station): ModelPacket[] {
  const blank = { destQpn: qp.qpNum, solicited: false, pkey: DEFAULT_PKEY };
  const request = (opcode: number, bytes: number, rest: Partial<ModelPacket> = {}): ModelPacket => ({
    ...blank,
    opcode,
    psn: expectedPsn,
    ackReq: true,
    payload: filled(new Uint8Array(bytes)),
    ...rest,
  });
  const answer = (opcode: number, bytes: number, rest: Partial<ModelPacket> = {}): ModelPacket =>
    request(opcode, bytes, { psn: nextPsn, ackReq: false, aeth: { syndrome: 0x1f, msn: 1 }, ...rest });
  const place = { va: mr.iova, rkey: mr.rkey };
  if (qp.type === 'UD') return [request(Opcode.UD_SEND_ONLY, 64, { deth: { qkey: QKEY, srcQpn: 1 } })];
  if (qp.type === 'UC') {
    return [
      request(Opcode.UC_RDMA_WRITE_ONLY, 64, { reth: { ...place, length: 64 } }),
      request(Opcode.UC_SEND_MIDDLE, 1024),
    ];
  }
  return [
    request(Opcode.RC_SEND_ONLY, 64),
    request(Opcode.RC_SEND_MIDDLE, 1024),
    request(Opcode.RC_RDMA_WRITE_ONLY, 64, { reth: { ...place, length: 64 } }),
    request(Opcode.RC_RDMA_READ_REQUEST, 0, { reth: { ...place, length: 4096 } }),
    request(Opcode.RC_FETCH_ADD, 0, { atomicEth: { ...place, swapAdd: 1n, compare: 0n } }),
    answer(Opcode.RC_ACKNOWLEDGE, 0),
    answer(Opcode.RC_RDMA_READ_RESPONSE_ONLY, 64),
    answer(Opcode.RC_ATOMIC_ACKNOWLEDGE, 0, { original: 7n }),
  ];
}
