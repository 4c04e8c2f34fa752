/** A test from the first message of the dialogue to the last: the order is perftest's, verb by verb. */
import type { Device } from '@node-roce/verbs-api';
import { gidFromText } from '@node-roce/wire';
import type { Channel, Patience } from './channel/channel.ts';
import type { CmConnections } from './connections.ts';
import { type Agreement, Dialogue, type DialogueOptions } from './dialogue/dialogue.ts';
import type { BandwidthFigures } from './dialogue/fields.ts';
import type { Key } from './dialogue/keys.ts';
import { broken } from './errors.ts';
import { runBandwidth, warmUp } from './measure/bandwidth.ts';
import { Endpoint, type MakeQp, makeQp } from './measure/endpoint.ts';
import { askLatency, type LatencyTimes, memoryLatency, messageLatency } from './measure/latency.ts';
import { inUnit } from './measure/meter.ts';
import { ReceiveRequests, SendRequests } from './measure/requests.ts';
import { Watch } from './measure/watch.ts';
import { fetches, measuresHere, type Plan, planAt, sizesOf } from './plan.ts';
import { histogram, latencies, latencyFigures } from './report/latency.ts';
import type { BandwidthResult, LatencyResult } from './report/result.ts';

export interface SessionParts {
  device: Device;
  /** Of this side: its address. */
  address: string;
  channel: Channel;
  patience: Patience;
  options: DialogueOptions;
  /** Connections of a connection manager, in place of queue pairs that the dialogue connects. */
  connections?: CmConnections;
  /** The engine is in another thread. */
  shared: boolean;
  histogram: boolean;
  onProgress?: (progress: PerfProgress) => void;
  /** ms between two calls of `onProgress` in a run. */
  progressEvery?: number;
}

/** How far a test has come on this side. */
export interface PerfProgress {
  /** Bytes of a message; where this side only answers, of the largest. */
  size: number;
  /** The number of the run, from 0 on. */
  run: number;
  /** How many there are: one for each size. */
  runs: number;
  /** Messages of the run that are done, or its time, from 0 to 1; undefined where this side only answers requests of the peer. */
  part: number | undefined;
  /** Messages of the run that are done, and ms since the run began; undefined as `part`. */
  messages: number | undefined;
  ms: number | undefined;
}

/** One test on one side. */
export class Session {
  readonly #parts: SessionParts;
  readonly #dialogue: Dialogue;
  readonly #watch: Watch;
  #plan: Plan;
  #agreement!: Agreement;
  #made: Endpoint | undefined;
  #remotes: readonly Key[] = [];
  #retransmittedPackets = 0;
  /** The number of the run, and its size. */
  #run: { run: number; size: number };

  constructor(parts: SessionParts, plan: Plan) {
    this.#parts = parts;
    this.#plan = plan;
    this.#dialogue = new Dialogue(parts.channel, parts.options);
    const { timeout, signal } = parts.patience;
    this.#run = { run: 0, size: plan.size };
    const onProgress =
      parts.onProgress && ((done: number, ms: number) => this.#progress(this.#partOf(done, ms), done, ms));
    const watched = { timeout, signal, signs: this.signs };
    this.#watch = new Watch(parts.channel, watched, onProgress, parts.progressEvery);
  }

  /** Signs of life of the peer: its part in the measurement goes on. */
  readonly signs = async (): Promise<number> => {
    const asks = this.#dialogue.isClient || this.#plan.bidirectional;
    return (await this.#made?.signs(asks)) ?? 0;
  };

  get agreement(): Agreement {
    return this.#agreement;
  }

  /** The peer has sent its first messages. */
  get hasBegun(): boolean {
    return this.#agreement !== undefined;
  }

  get plan(): Plan {
    return this.#plan;
  }

  get #endpoint(): Endpoint {
    return this.#made!;
  }

  get remotes(): readonly Key[] {
    return this.#remotes;
  }

  /** Of this side's queue pairs, once the test is over. */
  get retransmittedPackets(): number {
    return this.#retransmittedPackets;
  }

  #progress(part: number | undefined, messages = part, ms = part): void {
    this.#parts.onProgress?.({ ...this.#run, runs: sizesOf(this.#plan).length, part, messages, ms });
  }

  /** @param ms since the run began */
  #partOf(done: number, ms: number): number {
    const { duration, iters, qps } = this.#plan;
    return Math.min(duration === undefined ? done / (iters * qps) : ms / (1000 * duration), 1);
  }

  /** All of it. Rejects with RoceError; the caller closes the device. */
  async play(): Promise<BandwidthResult | LatencyResult> {
    await this.#setUp();
    const result = this.#plan.measure === 'bw' ? await this.#bandwidth() : await this.#latency();
    this.#retransmittedPackets = await this.#endpoint.retransmittedPackets();
    await this.#parts.connections?.disconnect();
    return result;
  }

  /** Ends queue pairs and memory, of a session that failed as well. */
  async close(): Promise<void> {
    await this.#made?.close();
  }

  async #setUp(): Promise<void> {
    const { device, address, connections, shared } = this.#parts;
    const dialogue = this.#dialogue;
    const { activeMtu } = device.query();
    const mtu = Math.min(activeMtu, this.#plan.mtu ?? activeMtu);
    this.#agreement = await dialogue.begin(mtu);
    this.#plan = planAt(this.#plan, this.#agreement.mtu, mtu);
    const taken = await dialogue.negotiate(this.#agreement, this.#plan, this.#plan.outReads);
    const { outReads } = this.#plan;
    // As perftest does it: the peer would not take a key with more.
    if (taken !== undefined && outReads > taken) this.#plan = { ...this.#plan, outReads: Math.max(taken, 1) };
    const plan = this.#plan;
    this.#made = await Endpoint.open(device, plan, this.#agreement, shared);
    const endpoint = this.#made;
    if (connections !== undefined) {
      await connections.prepare(plan);
      await dialogue.barrier();
      await connections.connect(endpoint, plan);
      if (plan.service === 'RC') {
        // That of the client's port, whichever the dialogue has agreed on.
        const { attr } = await endpoint.sides[0].qp.query(['pathMtu']);
        this.#agreement = { ...this.#agreement, mtu: attr.pathMtu! };
      }
      await dialogue.barrier();
    } else {
      const make: MakeQp = makeQp(plan);
      for (let i = 0; i < plan.qps; i++) endpoint.add(await endpoint.makeQp(make));
    }
    const keys = endpoint.keys(gidFromText(address));
    const early = plan.measure === 'lat' && plan.verb !== 'send' ? 1 : 0;
    const remotes = await dialogue.keys([...keys.slice(0, early), ...keys]);
    this.#remotes = remotes.slice(early);
    await endpoint.meet(this.#remotes, connections === undefined);
    if (plan.verb === 'send') await dialogue.barrier();
    await dialogue.keys(keys);
    if (plan.verb !== 'send') await dialogue.barrier();
  }

  // ---------------------------------------------------------------- bandwidth

  async #bandwidth(): Promise<BandwidthResult> {
    const plan = this.#plan;
    const { isClient } = this.#dialogue;
    const { gigabits } = this.#parts.options;
    const sends = isClient || plan.bidirectional;
    const receives = plan.consumesReceives && (!isClient || plan.bidirectional);
    const both = plan.bidirectional;
    const measures = measuresHere(plan, isClient);
    const result: BandwidthResult = {
      measure: 'bw',
      measuredBy: both ? 'both sides' : measures ? 'this side' : 'the peer',
      runs: [],
    };
    const none: BandwidthFigures = { size: plan.size, iterations: 0, peak: 0, average: 0, messageRate: 0 };
    let mine = none;
    const sizes = measures ? sizesOf(plan) : [];
    if (!measures) this.#progress(undefined);
    for (const [run, size] of sizes.entries()) {
      this.#run = { run, size };
      this.#progress(0);
      const part = {
        sends: sends ? this.#sendRequests(size) : undefined,
        receives: receives ? this.#postReceives(size) : undefined,
        waits: both && !isClient && plan.consumesReceives,
      };
      if (part.sends && plan.warmUp) await warmUp(this.#endpoint, plan, part.sends, this.#watch);
      if (both || plan.consumesReceives) await this.#dialogue.barrier();
      const meter = await runBandwidth(this.#endpoint, plan, part, this.#watch);
      mine = meter.figures(size, gigabits);
      const exchanges = both && (plan.duration === undefined || !plan.consumesReceives);
      // Of SEND the reports come before the barrier, of the others behind it.
      if (plan.all && plan.verb !== 'send' && (both || plan.writeWithImm)) await this.#dialogue.barrier();
      if (exchanges) {
        const theirs = await this.#report(mine);
        result.local = mine;
        result.remote = theirs;
        result.runs.push(sum(mine, theirs));
      } else result.runs.push(mine);
      if (plan.all && plan.verb === 'send') await this.#dialogue.barrier();
    }
    if (!both && !plan.consumesReceives) {
      await this.#dialogue.barrier();
      if (isClient) await this.#dialogue.report(mine);
      else result.runs.push(await this.#report(mine));
    }
    await this.#dialogue.barrier();
    return result;
  }

  /** Exchanges reports. Returns the peer's in the unit of this side. @throws RoceError ERR_ROCE_EXCHANGE for one of another size */
  async #report(mine: BandwidthFigures): Promise<BandwidthFigures> {
    const theirs = await this.#dialogue.reports(mine);
    if (theirs.size !== mine.size)
      throw broken(
        `the peer measured messages of ${theirs.size} bytes, not ${mine.size}: both sides need the same size`,
      );
    return inUnit(theirs, this.#parts.options.gigabits);
  }

  #sendRequests(size: number): SendRequests {
    const { sides, mr, layout } = this.#endpoint;
    return new SendRequests(sides, mr, layout, this.#plan, size);
  }

  #postReceives(size: number): ReceiveRequests {
    const { sides, mr, layout } = this.#endpoint;
    const receives = new ReceiveRequests(sides, mr, layout, this.#plan, size);
    receives.fill();
    return receives;
  }

  // ------------------------------------------------------------------ latency

  async #latency(): Promise<LatencyResult> {
    const plan = this.#plan;
    const { isClient } = this.#dialogue;
    const legs = fetches(plan) ? 1 : 2;
    const measures = measuresHere(plan, isClient);
    const result: LatencyResult = {
      measure: 'lat',
      measuredBy: legs === 2 ? 'both sides' : measures ? 'this side' : 'the peer',
      runs: [],
    };
    const sizes = measures ? sizesOf(plan) : [];
    if (!measures) this.#progress(undefined);
    for (const [run, size] of sizes.entries()) {
      this.#run = { run, size };
      this.#progress(0);
      const times = await this.#latencyRun(size);
      const figures = latencyFigures(times, size, plan.iters, legs);
      const drawn = this.#parts.histogram && times.posted.length > 0;
      result.runs.push(drawn ? { ...figures, histogram: histogram(latencies(times, legs)) } : figures);
    }
    // Of WRITE there is no closing barrier: the connection of the dialogue ends.
    if (plan.verb !== 'write') await this.#dialogue.barrier();
    return result;
  }

  async #latencyRun(size: number): Promise<LatencyTimes> {
    const plan = this.#plan;
    const { isClient } = this.#dialogue;
    if (plan.consumesReceives) {
      const receives = this.#postReceives(size);
      await this.#dialogue.barrier();
      // Of SEND the client begins, of WRITE the server.
      const begins = isClient === (plan.verb === 'send');
      return messageLatency(this.#endpoint, plan, { size, receives, begins }, this.#watch);
    }
    if (plan.verb === 'write')
      return memoryLatency(this.#endpoint, plan, { size, begins: !isClient }, this.#watch);
    return askLatency(this.#endpoint, plan, size, this.#watch);
  }
}

function sum(a: BandwidthFigures, b: BandwidthFigures): BandwidthFigures {
  return {
    size: a.size,
    iterations: a.iterations,
    peak: a.peak + b.peak,
    average: a.average + b.average,
    messageRate: a.messageRate + b.messageRate,
  };
}
