/** Two connection managers in virtual time, with a network between them that a test decides on. */
import { type CmName, cmNameAt, createRandom, ipCmServiceId, PortSpace } from '@node-roce/wire';
import { Connections } from '../src/connections.ts';
import type { AcceptInit, CmEvent, CmHost, ConnectInit, Route } from '../src/parameters.ts';

export const SERVICE = ipCmServiceId(PortSpace.TCP, 7471);

export const gidOf = (last: number): Uint8Array =>
  Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, last);

/** A MAD on its way. */
interface Flight {
  from: 0 | 1;
  mad: Uint8Array;
  name: CmName | undefined;
}

/** The fate of a MAD: the delays after which copies of it arrive, µs; none is a loss. */
export type Network = (flight: Flight) => number[];

/** Parts of the specification that an adapter may leave out, and its room. */
type Parts = Pick<CmHost, 'xrc' | 'apm' | 'maxConnections'>;

/** One side of a pair: its connections and their events. */
export class End {
  readonly events: CmEvent[] = [];
  readonly cm: Connections;

  constructor(pair: Pair, side: 0 | 1, random: () => number, parts: Parts, caGuid = BigInt(side + 1)) {
    this.cm = new Connections({
      random,
      caGuid,
      ...parts,
      // And an address for alternate paths.
      gids: [{ gid: gidOf(side + 1) }, { gid: gidOf(side + 11) }],
      send: (mad, route) => {
        pair.onSend?.(side, mad, route);
        pair.carry(side, mad);
      },
      event: (event) => {
        this.events.push(event);
        pair.onEvent?.(side, event);
      },
    });
  }

  /** The names of the events, and takes them. */
  heard(): string[] {
    return this.events.splice(0).map(({ type }) => type);
  }

  take<T extends CmEvent['type']>(type: T): Extract<CmEvent, { type: T }> {
    const at = this.events.findIndex((event) => event.type === type);
    if (at < 0) throw new Error(`no event ${type} among ${this.events.map((event) => event.type)}`);
    return this.events.splice(at, 1)[0] as Extract<CmEvent, { type: T }>;
  }
}

/** Two connection managers in virtual time, with a way between them that may lose MADs. */
export class Pair {
  now = 0;
  network: Network = () => [100];
  onSend: ((side: 0 | 1, mad: Uint8Array, route: Route) => void) | undefined;
  onEvent: ((side: 0 | 1, event: CmEvent) => void) | undefined;
  /** Names of all MADs that were sent, `0 REQ`. */
  readonly sent: string[] = [];
  readonly ends: [End, End];
  #flights: { at: number; order: number; to: 0 | 1; mad: Uint8Array }[] = [];
  #order = 0;

  constructor(seed = 1, parts: Parts = {}) {
    const random = createRandom(seed).next;
    this.ends = [new End(this, 0, random, parts), new End(this, 1, random, parts)];
  }

  get a(): End {
    return this.ends[0];
  }
  get b(): End {
    return this.ends[1];
  }

  carry(from: 0 | 1, mad: Uint8Array): void {
    const name = cmNameAt(mad, 0);
    this.sent.push(`${from} ${name}`);
    for (const delay of this.network({ from, mad, name }))
      this.#flights.push({
        at: this.now + delay,
        order: this.#order++,
        to: from === 0 ? 1 : 0,
        mad: mad.slice(),
      });
  }

  /** Puts a MAD before one end now. */
  deliver(to: 0 | 1, mad: Uint8Array): void {
    this.ends[to].cm.receive(mad, 0, routeTo(to === 0 ? 2 : 1), this.now);
  }

  /** Names of the messages sent since the last call. */
  said(): string[] {
    return this.sent.splice(0);
  }

  /** Lets time pass, µs. */
  run(microseconds: number): void {
    const end = this.now + microseconds;
    for (;;) {
      this.#flights.sort((x, y) => x.at - y.at || x.order - y.order);
      const arrival = this.#flights[0]?.at ?? Number.POSITIVE_INFINITY;
      const next = Math.min(arrival, this.a.cm.nextDeadline(), this.b.cm.nextDeadline());
      if (next > end) break;
      this.now = Math.max(this.now, next);
      if (arrival <= this.now) {
        const { to, mad } = this.#flights.shift()!;
        this.deliver(to, mad);
      }
      for (const { cm } of this.ends) cm.advance(this.now);
    }
    this.now = end;
  }

  /** A connection from the first end to the second, up to `until`. */
  connect(init: Partial<ConnectInit> = {}): number {
    return this.a.cm.connect(connectInit(init), this.now);
  }

  /** Both ends established: ids of the two. */
  established(): [number, number] {
    this.b.cm.listen(SERVICE);
    const id = this.connect();
    this.run(1000);
    const request = this.b.take('request');
    this.b.cm.accept(request.id, acceptInit(), this.now);
    this.run(1000);
    this.a.take('response');
    this.a.cm.ready(id);
    this.run(1000);
    this.a.take('established');
    this.b.take('established');
    return [id, request.id];
  }

  /** Both ends of a connection leave it, the first one first, and wait in TIMEWAIT. */
  end(id: number, other: number): void {
    this.a.cm.disconnect(id, this.now);
    this.run(1000);
    this.b.take('disconnected');
    this.b.cm.disconnect(other, this.now);
    this.run(1000);
    this.a.take('disconnected');
    const states = [this.a.cm.stateOf(id), this.b.cm.stateOf(other)];
    if (states.some((state) => state !== 'TIMEWAIT')) throw new Error(`both ends are in ${states}`);
  }

  /** Both ends in TIMEWAIT: ids of the two. */
  inTimewait(): [number, number] {
    const ids = this.established();
    this.end(...ids);
    return ids;
  }
}

export const routeTo = (last: number): Route => ({
  sgidIndex: 0,
  gid: gidOf(last),
  trafficClass: 0,
  hopLimit: 64,
  flowLabel: 0,
});

export const connectInit = (init: Partial<ConnectInit> = {}): ConnectInit => ({
  serviceId: SERVICE,
  route: routeTo(2),
  qpn: 0x51,
  startingPsn: 7,
  responderResources: 1,
  initiatorDepth: 1,
  pathMtu: 1024,
  ...init,
});

export const acceptInit = (init: Partial<AcceptInit> = {}): AcceptInit => ({
  qpn: 0x61,
  startingPsn: 9,
  responderResources: 1,
  initiatorDepth: 1,
  ...init,
});
