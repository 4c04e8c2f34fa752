/** Two connected endpoints, engine or model, on a network of their own. */
import { Access } from '@node-roce/transport';
import { createRandom, gidFromText } from '@node-roce/wire';
import type { ConnectionOptions, Endpoint } from './endpoint.ts';
import { EngineEndpoint } from './engine-endpoint.ts';
import { ModelEndpoint } from './model-endpoint.ts';
import { Network } from './network.ts';
import type { WireOptions } from './wire.ts';

export type EndpointKind = 'engine' | 'model';

/** The settings that a pair chooses for an endpoint that it has made. */
export interface EndpointOptions {
  /** 16 bytes. */
  gid: Uint8Array;
  /** First PSN that it sends. */
  psn: number;
  arenaBytes: number;
  /** For choices of its own. */
  seed: number;
  credits: boolean;
}

/** Makes an endpoint of one's own: a device under test. */
export type EndpointFactory = (options: EndpointOptions) => Endpoint;

export interface PairOptions extends Partial<ConnectionOptions> {
  /** The engine, the model, or a device of one's own. */
  a?: EndpointKind | EndpointFactory;
  b?: EndpointKind | EndpointFactory;
  /** Every random choice follows from it. */
  seed?: number;
  arenaBytes?: number;
  /** Entries of each queue of an engine. */
  depth?: number;
  aToB?: WireOptions;
  bToA?: WireOptions;
  /** First PSN of each side; random by default, now and then just before the wrap. */
  psn?: number;
}

export const CONNECTION_DEFAULTS: ConnectionOptions = {
  pathMtu: 1024,
  timeout: 10,
  retryCnt: 7,
  rnrRetry: 7,
  minRnrTimer: 1,
  maxRdAtomic: 4,
  maxDestRdAtomic: 4,
  qpAccessFlags: Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.FLUSH_GLOBAL,
  credits: false,
};

/** Two connected endpoints on a network: engine, model, or a device of one's own. */
export class Pair {
  readonly network: Network;
  readonly a: Endpoint;
  readonly b: Endpoint;

  constructor(options: PairOptions = {}) {
    const { a = 'engine', b = 'model', seed = 1, aToB = {}, bToA = {} } = options;
    this.network = new Network(seed);
    this.a = this.#create(a, options, 1);
    this.b = this.#create(b, options, 2);
    this.network.add(this.a);
    this.network.add(this.b);
    this.network.link(this.a, this.b, aToB);
    this.network.link(this.b, this.a, bToA);
    const connection = { ...CONNECTION_DEFAULTS, ...definedOf(options) };
    this.a.connect(this.b.info, connection);
    this.b.connect(this.a.info, connection);
  }

  #create(kind: EndpointKind | EndpointFactory, options: PairOptions, number: number): Endpoint {
    const { seed = 1, arenaBytes = 1 << 20, depth, credits = false } = options;
    const random = createRandom(seed * 7919 + number);
    const gid = gidFromText(`10.0.0.${number}`);
    const drawn = random.chance(0.25) ? 0x1000000 - random.between(1, 20) : random.between(0, 0xffffff);
    const psn = options.psn ?? drawn;
    if (kind === 'model') {
      return new ModelEndpoint({ gid, qpn: 0x10 + number, psn, arenaBytes, notifies: true });
    }
    const made: EndpointOptions = { gid, psn, arenaBytes, seed: random.next(), credits };
    return kind === 'engine' ? new EngineEndpoint({ ...made, depth }) : kind(made);
  }

  /** Runs until both have so many completions, or `until` µs of virtual time. */
  run(done: () => boolean, until?: number): boolean {
    return this.network.run(done, until);
  }
}

/** The connection's attributes among the options, without those that were left out. */
function definedOf(options: PairOptions): Partial<ConnectionOptions> {
  const keys = Object.keys(CONNECTION_DEFAULTS) as (keyof ConnectionOptions)[];
  return Object.fromEntries(
    keys.filter((key) => options[key] !== undefined).map((key) => [key, options[key]]),
  );
}
