/**
 * The dialogue of perftest over a channel: at each exchange the client writes first and the server reads first, and both
 * messages have the same size. Order, sizes and versions are those of perftest_communication.c.
 */
import type { Channel } from '../channel/channel.ts';
import { broken } from '../errors.ts';
import type { Plan } from '../plan.ts';
import {
  type BandwidthFigures,
  decodeFigure,
  decodeMtu,
  decodePowerOfTwo,
  encodeFigure,
  encodeInt,
  encodeMtu,
  FIGURES,
} from './fields.ts';
import { checkKey, type Key, type KeyForm, LONG_KEYS, SHORT_KEYS, TEXT_KEYS } from './keys.ts';
import {
  checkParameters,
  encodeParameters,
  maxRdAtomOf,
  type Negotiable,
  PARAMETER_BYTES,
} from './parameters.ts';
import {
  answerTo,
  type ClientVersion,
  decodeVersion,
  encodeVersion,
  negotiates,
  VERSION_BYTES,
  validatesData,
} from './versions.ts';

/** Page and cache line of this side, which has none that matter: the least that every machine has. */
const CYCLE_BUFFER = 4096;
const CACHE_LINE = 64;
const MAX_CYCLE_BUFFER = 2 ** 21;
const MAX_CACHE_LINE = 4096;

/** The sizes that both sides agreed on. */
export interface Agreement {
  /** The version that the peer announced. */
  peerVersion: string;
  /** The range in which addresses of small messages advance, bytes. */
  cycleBuffer: number;
  /** The step in which they do, bytes. */
  cacheLine: number;
  /** Path MTU, bytes. */
  mtu: number;
}

/** Choices of one side. */
export interface DialogueOptions {
  /** The version that a client announces. */
  version: ClientVersion;
  /** Over the connection manager keys travel as a structure, and test and control connections are two. */
  rdmaCm: boolean;
  /** Reports are in Gb/s. */
  gigabits: boolean;
}

const NO_KEY: Key = { lid: 0, outReads: 0, qpn: 0, psn: 0, rkey: 0, vaddr: 0n, gid: new Uint8Array(16) };

/** One dialogue, from the versions to the closing barrier. */
export class Dialogue {
  readonly #channel: Channel;
  readonly #options: DialogueOptions;
  #keys: KeyForm = TEXT_KEYS;
  #version = '';
  #barrier = NO_KEY;
  /** The key that barriers of the peer repeat. */
  #peerBarrier = NO_KEY;

  constructor(channel: Channel, options: DialogueOptions) {
    this.#channel = channel;
    this.#options = options;
  }

  get isClient(): boolean {
    return this.#channel.isClient;
  }

  async #exchange(mine: Buffer): Promise<Buffer> {
    if (this.isClient) await this.#channel.write(mine);
    const theirs = await this.#channel.read(mine.length);
    if (!this.isClient) await this.#channel.write(mine);
    return theirs;
  }

  /**
   * Versions, page and cache line, MTU.
   * @param mtu bytes, the largest of this side
   */
  async begin(mtu: number): Promise<Agreement> {
    const peerVersion = await this.#versions();
    const cycle = decodePowerOfTwo(
      await this.#exchange(encodeInt(CYCLE_BUFFER)),
      'page size',
      CYCLE_BUFFER,
      MAX_CYCLE_BUFFER,
    );
    const line = decodePowerOfTwo(
      await this.#exchange(encodeInt(CACHE_LINE)),
      'cache line',
      1,
      MAX_CACHE_LINE,
    );
    const peerMtu = decodeMtu(await this.#exchange(encodeMtu(mtu)));
    return {
      peerVersion,
      cycleBuffer: Math.max(CYCLE_BUFFER, cycle),
      cacheLine: Math.max(CACHE_LINE, line),
      mtu: Math.min(mtu, peerMtu),
    };
  }

  async #versions(): Promise<string> {
    const channel = this.#channel;
    if (this.isClient) await channel.write(encodeVersion(this.#options.version));
    const peer = decodeVersion(await channel.read(VERSION_BYTES));
    this.#version = this.isClient ? this.#options.version : answerTo(peer);
    if (!this.isClient) await channel.write(encodeVersion(this.#version));
    if (this.#options.rdmaCm) this.#keys = validatesData(peer) ? LONG_KEYS : SHORT_KEYS;
    return peer;
  }

  /** Each real program looks at its peer's version only: its own is then as new. */
  #negotiates(peerVersion: string): boolean {
    return negotiates(this.#version.split('-')[0]) && negotiates(peerVersion);
  }

  /**
   * From 6.28 on: compares the tests, and returns how many READs and atomics the peer takes at once; before that, undefined.
   *
   * @throws RoceError ERR_ROCE_EXCHANGE where the peer's test is another
   */
  async negotiate({ peerVersion }: Agreement, plan: Plan, maxRdAtom: number): Promise<number | undefined> {
    if (!this.#negotiates(peerVersion)) return undefined;
    const mine: Negotiable = { plan, rdmaCm: this.#options.rdmaCm, gigabits: this.#options.gigabits };
    const { plain, mlx5 } = PARAMETER_BYTES;
    if (this.isClient) {
      const bytes = this.#options.version === '6.29-mlx5' ? mlx5 : plain;
      const theirs = await this.#exchange(encodeParameters(mine, maxRdAtom, bytes));
      checkParameters(mine, theirs, peerVersion);
      return maxRdAtomOf(theirs);
    }
    const theirs = await this.#channel.readOneOf([plain, mlx5]);
    await this.#channel.write(encodeParameters(mine, maxRdAtom, theirs.length));
    checkParameters(mine, theirs, peerVersion);
    return maxRdAtomOf(theirs);
  }

  /** One key for each queue pair. The first of this side is what barriers repeat. */
  async keys(mine: readonly Key[]): Promise<Key[]> {
    this.#barrier = mine[0];
    const theirs: Key[] = [];
    for (const key of mine) theirs.push(checkKey(await this.#key(key)));
    this.#peerBarrier = theirs[0];
    return theirs;
  }

  async #key(mine: Key): Promise<Key> {
    return this.#keys.decode(await this.#exchange(this.#keys.encode(mine)));
  }

  /**
   * Waits until the peer has come as far: both sides repeat their first key, zeros before there is one.
   *
   * @throws RoceError ERR_ROCE_EXCHANGE for another key: the peer has more queue pairs, and is still at their keys
   */
  async barrier(): Promise<void> {
    const { qpn } = await this.#key(this.#barrier);
    if (qpn !== this.#peerBarrier.qpn)
      throw broken(
        'the peer is at another step of the dialogue: do both sides have the same options, -q among them?',
      );
  }

  /** Reports of a bandwidth run that both sides measured, or only the peer. Returns the peer's. */
  async reports(mine: BandwidthFigures): Promise<BandwidthFigures> {
    const fields = await this.report(mine);
    const theirs: BandwidthFigures = { size: 0, iterations: 0, peak: 0, average: 0, messageRate: 0 };
    for (const [i, name] of FIGURES.entries()) theirs[name] = decodeFigure(name, fields[i]);
    return theirs;
  }

  /**
   * The report of a bandwidth run, one exchange for each figure. Returns the fields of the peer: a server of perftest that did not
   * measure leaves its own uninitialized.
   */
  async report(mine: BandwidthFigures): Promise<Buffer[]> {
    const fields: Buffer[] = [];
    for (const name of FIGURES) fields.push(await this.#exchange(encodeFigure(name, mine[name])));
    return fields;
  }
}
