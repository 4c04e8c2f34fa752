/**
 * Local ports of ids (rdma_bind_addr(3)): an id has its port of an address alone, from the moment that it is bound, as in Linux
 * (core/cma.c `cma_alloc_port`). The ports are those of one device; ids that wait at any address have theirs in all devices of a UDP port.
 */
import { randomInt } from 'node:crypto';
import { RoceError } from '@node-roce/verbs-api';
import { gidToText, isIpv4Mapped } from '@node-roce/wire';
import { gidOf, isAnyAddress } from './addresses.ts';
import { portInUse } from './errors.ts';

/** Ports that are drawn, those of IANA for that; where all of them are taken, any that needs no privilege. */
const RANGES = [
  [49_152, 65_535],
  [1024, 49_151],
] as const;

/** The tables of ports that concern an id. */
export interface PortTables {
  /** Where its port is entered. */
  own: string;
  /** Where it must be free as well. */
  others: readonly string[];
  /** Where several processes share the address: drawn ports of this device have this remainder. */
  residue?: { modulus: number; remainder: number };
}

/** Addresses that have a port, as keys. */
type Addresses = Set<string>;
/** By name of the table and port space, and port. */
const tables = new Map<string, Map<number, Addresses>>();

const ANY4 = '0.0.0.0';
const ANY6 = '::';
/** The same of an id with RDMA_OPTION_ID_AFONLY: it does not stand for IPv4. */
const ONLY6 = ':: only';

/** An address as a key: the same for each way to write it. */
function keyOf(address: string, isV6Only: boolean): string {
  if (isAnyAddress(address)) return address.includes(':') ? (isV6Only ? ONLY6 : ANY6) : ANY4;
  return gidToText(gidOf(address));
}

/** Whether one is the address that the other is, or among those that the other stands for. `::` stands for IPv4, too. */
function meets(a: string, b: string): boolean {
  const isV4 = (one: string) => one !== ONLY6 && one !== ANY6 && isIpv4Mapped(gidOf(one));
  const covers = (any: string, one: string) =>
    any === ANY6 || (any === ANY4 && isV4(one)) || (any === ONLY6 && !isV4(one));
  return a === b || covers(a, b) || covers(b, a);
}

/** A port that an id has, until it is released. */
export class PortBinding {
  readonly port: number;
  /** The program has not chosen it. */
  readonly isDrawn: boolean;
  readonly #table: string;
  readonly #address: string;

  /** @internal `bindPort` */
  constructor(table: string, address: string, port: number, isDrawn: boolean) {
    this.#table = table;
    this.#address = address;
    this.port = port;
    this.isDrawn = isDrawn;
    const ports = tables.get(table) ?? new Map<number, Addresses>();
    tables.set(table, ports);
    const addresses = ports.get(port);
    if (addresses) addresses.add(address);
    else ports.set(port, new Set([address]));
  }

  release(): void {
    const ports = tables.get(this.#table);
    const addresses = ports?.get(this.port);
    if (!addresses?.delete(this.#address) || addresses.size > 0) return;
    ports!.delete(this.port);
    if (ports!.size === 0) tables.delete(this.#table);
  }
}

/**
 * Takes a port of an address; 0 draws one that no id has.
 *
 * @param isV6Only `::` is for IPv6 alone: `0.0.0.0` of another id may have the port, too
 * @throws EADDRINUSE for a port that another id has at the address; EADDRNOTAVAIL where none is left to draw
 */
export function bindPort(
  { own, others, residue }: PortTables,
  space: string,
  address: string,
  port: number,
  isV6Only = false,
): PortBinding {
  const table = (name: string) => `${name} ${space}`;
  const key = keyOf(address, isV6Only);
  const concerned = [own, ...others].flatMap((name) => tables.get(table(name)) ?? []);
  if (port !== 0) {
    const isTaken = concerned.some((ports) =>
      [...(ports.get(port) ?? [])].some((other) => meets(key, other)),
    );
    if (isTaken) throw portInUse({ address, port });
    return new PortBinding(table(own), key, port, false);
  }
  for (const [first, last] of RANGES) {
    const drawn = draw(first, last, residue, (candidate) => concerned.some((ports) => ports.has(candidate)));
    if (drawn !== undefined) return new PortBinding(table(own), key, drawn, true);
  }
  throw new RoceError('ERR_ROCE_PORT_IN_USE', `all ports of ${address} are in use`, {
    errno: 'EADDRNOTAVAIL',
    attribute: 'port',
    expected: 'fewer connections from one address',
  });
}

/** The first port that is free from a random one on; undefined where there is none. */
function draw(
  first: number,
  last: number,
  { modulus, remainder }: { modulus: number; remainder: number } = { modulus: 1, remainder: 0 },
  isTaken: (port: number) => boolean,
): number | undefined {
  const least = first + ((remainder + modulus - (first % modulus)) % modulus);
  const count = Math.floor((last - least) / modulus) + 1;
  const start = randomInt(count);
  for (let i = 0; i < count; i++) {
    const port = least + ((start + i) % count) * modulus;
    if (!isTaken(port)) return port;
  }
  return undefined;
}
