/**
 * The recorded dialogues of Linux's connection manager, with ours in the place of one side, and of the other: what the
 * program asked for and what chance gave (ids, PSNs, QPNs, GUIDs) is taken from the record, everything that our side then
 * sends has to be the recorded message, bit for bit.
 */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type CmEvent, Connections, type Route } from '@node-roce/cm';
import { openCapture } from '@node-roce/pcap/node';
import {
  type CmFields,
  type CmMessage,
  CmTransport,
  decodeCm,
  gidEquals,
  gidFromIpBytes,
  mtuEnumToBytes,
  parseFrame,
  toHex,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';

const folder = join(import.meta.dirname, '../fixtures/captures');

interface Mad {
  /** Index of the sender among the two addresses, in the order of their first message. */
  side: 0 | 1;
  bytes: Uint8Array;
  message: CmMessage;
  /** µs. */
  time: number;
}

interface Recording {
  addresses: Uint8Array[];
  mads: Mad[];
}

async function read(file: string): Promise<Recording> {
  const addresses: Uint8Array[] = [];
  const mads: Mad[] = [];
  await using capture = openCapture(join(folder, file));
  for await (const batch of capture) {
    for (const record of batch) {
      const parsed = parseFrame(record.data, record.linkType);
      if (!parsed.ok || parsed.packet.bth.destQp !== 1) continue;
      const { ip, payload } = parsed.packet;
      const sourceGid = gidFromIpBytes(ip.source);
      const destinationGid = gidFromIpBytes(ip.destination);
      const result = decodeCm(payload);
      if (!result.ok) throw new Error(`${file}: ${result.reason}`);
      if (addresses.length === 0) addresses.push(sourceGid, destinationGid);
      const side = gidEquals(sourceGid, addresses[0]) ? 0 : 1;
      const time = Number(record.timestamp) / 1000;
      mads.push({ side, bytes: payload.slice(), message: result.message, time });
    }
  }
  return { addresses, mads };
}

const routeFrom = (gid: Uint8Array, fields?: Partial<CmFields<'REQ'>>): Route => ({
  sgidIndex: 0,
  gid,
  trafficClass: fields?.primaryTrafficClass ?? 0,
  hopLimit: fields?.primaryHopLimit ?? 64,
  flowLabel: fields?.primaryFlowLabel ?? 0,
});

/** Our connection manager in the place of one side. */
class Player {
  readonly cm: Connections;
  readonly events: CmEvent[] = [];
  /** Sent messages that have not been compared with the record. */
  readonly sent: Uint8Array[] = [];
  readonly #side: 0 | 1;
  readonly #recording: Recording;
  readonly #random: number[] = [];
  /** Of our ids by the peer's or our own number in the record. */
  readonly #ids = new Map<number, number>();
  /** DREQs of the peer's, kept until our side answers them in the record: they may have crossed. */
  readonly #kept = new Map<number, Mad>();

  constructor(recording: Recording, side: 0 | 1) {
    this.#recording = recording;
    this.#side = side;
    const own = recording.mads.filter((mad) => mad.side === side).map(({ message }) => message);
    const guids = own.flatMap((message) => ('localCaGuid' in message ? [message.localCaGuid] : []));
    // The first number that it draws is the high half of its transaction ids.
    const opening = own.find(({ name }) => name === 'REQ' || name === 'DREQ');
    this.#random.push(Number((opening?.transactionId ?? 0n) >> 32n));
    this.cm = new Connections({
      random: () => this.#random.shift()!,
      caGuid: guids[0] ?? 0n,
      gids: [{ gid: recording.addresses[side] }],
      send: (mad) => void this.sent.push(mad.slice()),
      event: (event) => void this.events.push(event),
    });
  }

  /** Listens to the services that the record shows accepted. */
  listen(): void {
    const { mads } = this.#recording;
    const services = new Set<bigint>();
    for (const { side, message } of mads) {
      if (side === this.#side || message.name !== 'REQ') continue;
      const accepted = mads.some(
        ({ message: other }) => other.name === 'REP' && other.remoteCommId === message.localCommId,
      );
      if (accepted) services.add(message.serviceId);
    }
    for (const service of services) this.cm.listen(service);
  }

  play(mad: Mad): void {
    if (mad.side !== this.#side) this.#receive(mad);
    else {
      this.#say(mad);
      const said = this.sent.shift();
      expect(said && toHex(said), `${mad.message.name} of side ${mad.side}`).toBe(toHex(mad.bytes));
    }
  }

  #receive(mad: Mad): void {
    const { message } = mad;
    if (message.name === 'DREQ') this.#kept.set(message.remoteCommId, mad);
    else this.#take(mad);
  }

  #take({ bytes, message, side, time }: Mad): void {
    if (message.name === 'REQ') {
      const reply = this.#recording.mads.find(
        ({ message: other }) => other.name === 'REP' && other.remoteCommId === message.localCommId,
      )?.message as CmMessage<'REP'> | undefined;
      if (reply) this.#random.push(reply.localCommId);
    }
    this.cm.receive(bytes, 0, routeFrom(this.#recording.addresses[side]), time);
    const event = this.events.at(-1);
    if (event?.type === 'request') this.#ids.set(event.request.localCommId, event.id);
  }

  /** The program's calls that made this message. */
  #say({ message, time }: Mad): void {
    switch (message.name) {
      case 'REQ':
        this.#random.push(message.localCommId);
        this.#ids.set(message.localCommId, this.#connect(message, time));
        break;
      case 'REP': {
        const { localQpn: qpn, startingPsn, responderResources, initiatorDepth } = message;
        const { rnrRetryCount, srq, targetAckDelay, privateData } = message;
        const offer = { qpn, startingPsn, responderResources, initiatorDepth, rnrRetryCount, srq };
        const id = this.#ids.get(message.remoteCommId)!;
        this.cm.accept(id, { ...offer, targetAckDelay, privateData }, time);
        break;
      }
      case 'RTU':
        this.cm.ready(message.localCommId);
        break;
      case 'DREQ':
        this.cm.disconnect(message.localCommId, time);
        break;
      case 'DREP': {
        const kept = this.#kept.get(message.localCommId);
        if (kept) this.#take(kept);
        if (this.cm.stateOf(message.localCommId) === 'DREQ_RCVD')
          this.cm.disconnect(message.localCommId, time);
        break;
      }
      case 'REJ':
        break; // Of a service without listener: by itself.
      default:
        throw new Error(`the record has a ${message.name}`);
    }
  }

  #connect(message: CmMessage<'REQ'>, time: number): number {
    const { localQpn, startingPsn, responderResources, initiatorDepth, retryCount, rnrRetryCount } = message;
    expect(message.transportService).toBe(CmTransport.RC);
    return this.cm.connect(
      {
        qpn: localQpn,
        startingPsn,
        responderResources,
        initiatorDepth,
        retryCount,
        rnrRetryCount,
        srq: message.srq,
        serviceId: message.serviceId,
        route: routeFrom(message.primaryRemoteGid, message),
        serviceLevel: message.primaryServiceLevel,
        pathMtu: mtuEnumToBytes(message.pathMtu),
        privateData: message.privateData,
        // Linux 6.1 takes a packet lifetime of 18, later ones 16.
        packetLifetime: 18,
      },
      time,
    );
  }
}

const EVENTS: Record<string, [string[], string[]]> = {
  rping: [
    ['response', 'established', 'disconnected'],
    ['request', 'established', 'disconnected'],
  ],
  refused: [['rejected'], []],
};

describe('recorded dialogues', () => {
  const files = readdirSync(folder).filter((name) => /cm.*\.pcap$/.test(name) && !name.includes('mckey'));

  test('are there', () => {
    expect(files.length).toBeGreaterThanOrEqual(9);
  });

  for (const file of files) {
    for (const side of [0, 1] as const) {
      test(`${file}: side ${side}`, async () => {
        const recording = await read(file);
        const player = new Player(recording, side);
        player.listen();
        for (const mad of recording.mads) player.play(mad);
        expect(player.sent).toEqual([]);
        expect(player.cm.counters).toMatchObject({ unexpected: 0, malformed: 0, retried: 0, overflowed: 0 });
        const expected = EVENTS[file.includes('refused') ? 'refused' : 'rping'][side];
        const heard = player.events.map(({ type }) => type);
        const connections = heard.filter((type) => type === expected[0]).length;
        expect(heard.sort()).toEqual(Array(connections).fill(expected).flat().sort());
        // Nothing is left once the last one may be forgotten.
        player.cm.advance(recording.mads.at(-1)!.time + 10e6);
        expect(player.cm.size).toEqual({ connections: 0, pending: 0, keys: 0, timers: 0 });
      });
    }
  }
});
