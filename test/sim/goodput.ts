/** Goodput of one reliable connection over a path that loses or reorders packets, or to a peer that is slow, in virtual time. */
import {
  type EndpointFactory,
  type EndpointKind,
  type EngineDeviceOptions,
  EngineEndpoint,
  Pair,
  type SlowOptions,
  type WireOptions,
} from '@node-roce/sim';

/** Those that consume a receive at the peer. */
const WITH_RECEIVE = ['SEND', 'SEND_WITH_IMM', 'RDMA_WRITE_WITH_IMM'] as const;
type Asked = (typeof WITH_RECEIVE)[number] | 'RDMA_WRITE' | 'RDMA_READ' | 'FLUSH' | 'ATOMIC_WRITE';

export interface GoodputOptions {
  opcode: Asked | 'ATOMIC_FETCH_AND_ADD' | 'ATOMIC_CMP_AND_SWP';
  /** The responder: the model discards what comes early. */
  peer: EndpointKind;
  seed: number;
  /** Bits per second, headers down to Ethernet's included. */
  rate: number;
  /** Without queues and serialization, µs. */
  roundTrip: number;
  /** Bytes. */
  pathMtu: number;
  /** Share of the packets lost, in both directions. */
  loss?: number;
  /** Share of the packets that come `lateBy` µs later, in both directions. */
  late?: number;
  lateBy?: number;
  /** The responder takes its time. */
  slow?: SlowOptions;
  /** Bytes of each message. */
  messageBytes?: number;
  /** Messages outstanding. */
  depth?: number;
  /** Local ACK timeout code. */
  timeout?: number;
  /** Messages before the measurement begins; 0 by default. */
  warmUp?: number;
  /** Virtual time that is measured, µs. */
  duration: number;
  /** Of engines: what the device is made with. */
  device?: Partial<EngineDeviceOptions>;
}

export interface GoodputOutcome {
  /** Payload of completed messages, Gb/s. */
  gbps: number;
  /** Bytes of packets sent in both directions, over bytes of completed messages. */
  sentOverDelivered: number;
  /** Of the requester. */
  probes: number;
  timeouts: number;
  retransmitted: number;
  /** Of an engine that responds: packets that it had already. */
  duplicates: number;
  /** That the requester sent. */
  packets: number;
  messages: number;
}

/**
 * One side posts messages back to back, `depth` outstanding; the other only responds.
 *
 * @throws Error if a message fails
 */
export function runGoodput(options: GoodputOptions): GoodputOutcome {
  const { opcode, peer, seed, rate, roundTrip, pathMtu, loss = 0, late = 0, lateBy = 0, duration } = options;
  const { messageBytes = 1 << 18, depth = 16, timeout = 14, device, slow, warmUp = 0 } = options;
  const engine: EndpointFactory = (made) => new EngineEndpoint({ ...made, checkEvery: 4096, ...device });
  const wire: WireOptions = { delay: roundTrip / 2, rate, loss, reorder: late, reorderBy: lateBy };
  const pair = new Pair({
    a: engine,
    b: peer === 'engine' ? engine : peer,
    seed,
    pathMtu,
    timeout,
    arenaBytes: messageBytes,
    maxRdAtomic: 16,
    maxDestRdAtomic: 16,
    aToB: wire,
    bToA: wire,
  });
  const { network, a, b } = pair;
  for (const side of [a, b]) {
    if (peer === 'engine') (side as EngineEndpoint).adapter.acknowledgeAhead(side.info.qpn);
  }
  network.record = false;
  if (slow !== undefined) network.slow(b, slow);
  let bytes = 0;
  network.observer = (event, packet) => {
    if (event === 'sent') bytes += packet.bytes.length;
  };
  const consumesReceive = (WITH_RECEIVE as readonly string[]).includes(opcode);
  const flush = opcode === 'FLUSH' ? { length: messageBytes, placement: 1, selectivity: 0 } : undefined;
  let posted = 0;
  let done = 0;
  const step = (until: number) => () => {
    b.pollReceive();
    for (const { status } of a.pollSend()) {
      if (status !== 'SUCCESS') throw new Error(`message ${done} ended with ${status} at ${network.now} µs`);
      done++;
    }
    while (posted - done < depth) {
      if (consumesReceive) b.postReceive({ wrId: posted, offset: 0, length: messageBytes });
      a.postSend({
        wrId: posted++,
        opcode,
        offset: 0,
        length: flush === undefined ? messageBytes : 0,
        remoteOffset: 0,
        compareAdd: 1n,
        swap: 1n,
        immediate: 1,
        ...(flush && { flush }),
      });
    }
    return done >= until;
  };
  network.run(step(warmUp));
  const [doneBefore, before] = [done, (a as EngineEndpoint).adapter.counters()];
  bytes = 0;
  network.run(step(Number.POSITIVE_INFINITY), network.now + duration);
  const counters = (a as EngineEndpoint).adapter.counters();
  const messages = done - doneBefore;
  const delivered = messages * messageBytes;
  return {
    gbps: (delivered * 8) / duration / 1000,
    sentOverDelivered: bytes / Math.max(1, delivered),
    probes: counters.probes - before.probes,
    timeouts: counters.timeouts - before.timeouts,
    retransmitted: counters.retransmittedPackets - before.retransmittedPackets,
    duplicates: b instanceof EngineEndpoint ? b.adapter.counters().duplicateRequest : 0,
    packets: counters.sentPackets - before.sentPackets,
    messages,
  };
}
