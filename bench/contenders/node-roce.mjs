/** node-roce over its UDP link: two processes, each with a device, on 127.0.0.1 and 127.0.0.2. */
import { connectedPair, nextPort, SideProcess } from '../sides/process.mjs';
import { percentile } from '../statistics.mjs';

/**
 * ms of warm-up, as with `--compare`: where both sides keep both processors busy, V8 takes as long to compile the hot functions. At most
 * so many times the messages that are measured, which a quick run has few of.
 */
const WARM_UP = 3000;
const WARM_UP_MOST = 4;

async function warmUp(run, count) {
  const part = Math.ceil(count / 4);
  const until = performance.now() + WARM_UP;
  for (let played = 0; played < WARM_UP_MOST * count && performance.now() < until; played += part)
    await run(part);
}

/** Messages in flight: as many as 16 MiB hold, 2 to 256. */
function depthFor(size) {
  return Math.max(2, Math.min(256, Math.floor((16 << 20) / size)));
}

async function connected(options, execArgv, body, ends) {
  const pair = await connectedPair(options, { execArgv, ends });
  try {
    const result = await body(pair.a, pair.b, pair.remote);
    await Promise.all([pair.a.close(), pair.b.close()]);
    return result;
  } finally {
    pair.a.kill();
    pair.b.kill();
  }
}

/** Resolves with a function that streams so many messages from `a` to `b`. */
export async function streamer(a, b, { operation, size, ...plan }) {
  const { ring } = await a.call('prepare', { operation, size, depth: depthFor(size), ...plan });
  return async (count, sampled = false) => {
    const rounded = Math.ceil(count / ring) * ring;
    const [result] = await Promise.all([
      a.call('stream', { count, sampled }),
      operation === 'SEND' ? b.call('absorb', { size, count: rounded, numbers: plan.numbers }) : undefined,
    ]);
    return result;
  };
}

/** Resolves with a function that plays so many round trips between `a` and `b`. */
export async function ping(a, b, { size, events }) {
  await a.call('receives', { size, count: 4 });
  await b.call('receives', { size, count: 4 });
  return async (count, sampled = false) => {
    const [result] = await Promise.all([
      a.call('echo', { size, count, events, first: true, sampled }),
      b.call('echo', { size, count, events, first: false }),
    ]);
    return result;
  };
}

function streamOver(options, { operation, size, mtu, bytes }) {
  return connected({ mtu, offload: true, ...options }, [], async (a, b, remote) => {
    const count = Math.max(depthFor(size), Math.ceil(bytes / size));
    const run = await streamer(a, b, { operation, size, remote });
    await run(Math.ceil(count / 4));
    const { messages, seconds } = await run(count);
    return { gbps: (8e-9 * messages * size) / seconds };
  });
}

/** @param engine `inline` or `worker` */
const within = (name, engine) => ({
  name,
  missing: () => undefined,

  /** One way, with warm-up; figures of the requester's clock. */
  stream({ operation, size, mtu, offload = true, bytes, events, batch, numbers }, { execArgv = [] } = {}) {
    return connected({ mtu, offload, engine }, execArgv, async (a, b, remote) => {
      const count = Math.max(depthFor(size), Math.ceil(bytes / size));
      const run = await streamer(a, b, { operation, size, remote, events, batch, numbers });
      await warmUp(run, count);
      const before = [await a.call('mark'), await b.call('mark')];
      const { messages, seconds } = await run(count);
      const after = [await a.call('mark'), await b.call('mark')];
      const packets = messages * Math.max(1, Math.ceil(size / mtu));
      const cpu = after[0].cpu - before[0].cpu + after[1].cpu - before[1].cpu;
      return {
        gbps: (8e-9 * messages * size) / seconds,
        messagesPerSecond: messages / seconds,
        cpuNsPerPacket: (cpu * 1000) / packets,
        cpuSecondsPerGigabyte: (cpu * 1000) / (messages * size),
        youngCollections: [after[0].young - before[0].young, after[1].young - before[1].young],
        messages,
      };
    });
  },

  /**
   * A stream over fault links that lose this share of the packets that each side sends. For comparison the same stream over fault
   * links that lose nothing, and over the sockets alone: a fault link copies each packet, and merges none.
   */
  async lossy({ loss, recovery, bytes, ...plan }) {
    const run = (options, share = 1) => streamOver(options, { ...plan, bytes: bytes * share });
    const sockets = await run({});
    const clean = await run({ faults: { loss: 0 } });
    const lossy = await run({ faults: { loss, direction: 'outbound', seed: 3 }, recovery }, 1 / 4);
    return {
      gbps: lossy.gbps,
      cleanGbps: clean.gbps,
      socketsGbps: sockets.gbps,
      percentOfClean: (100 * lossy.gbps) / clean.gbps,
      percentOfSockets: (100 * lossy.gbps) / sockets.gbps,
    };
  },

  /**
   * Small requests one after another, each with nothing behind it, over fault links that delay and lose packets; µs. The cost
   * of a loss is how much later than the median those are answered that are late by more than half a median.
   */
  async lostTail({ operation, delay, loss, count }) {
    const faults = { delay, loss, direction: 'outbound', seed: 5 };
    return connected({ mtu: 4096, offload: true, faults }, [], async (a, _b, remote) => {
      const { first, times } = await a.call('tails', { operation, remote, count });
      const p50 = percentile(times, 50);
      const late = times.filter((time) => time > 1.5 * p50);
      if (late.length < (count * loss) / 2) throw new Error(`${late.length} of ${count} requests were late`);
      const cost = percentile(late, 50) - p50;
      return { cost, worst: times.at(-1) - p50, p50, p99: percentile(times, 99), late: late.length, first };
    });
  },

  /** 64-byte SEND and its answer; µs. */
  pingpong({ size, count, events }, { execArgv = [] } = {}) {
    return connected({ mtu: 4096, offload: true, engine }, execArgv, async (a, b) => {
      const run = await ping(a, b, { size, events });
      await warmUp(run, count);
      const { p50, p99, p999 } = await run(count);
      return { p50, p99, p999 };
    });
  },

  /** Bytes that V8 allocates for a message, sampled; and the young collections of both sides meanwhile. */
  allocation({ operation, size, count }) {
    return connected({ mtu: 4096, offload: true }, [], async (a, b, remote) => {
      const run = await streamer(a, b, { operation, size, remote });
      await run(Math.ceil(count / 4));
      const before = [await a.call('mark'), await b.call('mark')];
      await run(count);
      const after = [await a.call('mark'), await b.call('mark')];
      const { allocated, messages } = await run(count, true);
      return {
        bytesPerMessage: allocated / messages,
        youngCollections: after.map(({ young }, i) => young - before[i].young),
      };
    });
  },

  /** The same for a message there and its answer. */
  allocationOfRoundTrips({ size, events, count }) {
    return connected({ mtu: 4096, offload: true }, [], async (a, b) => {
      const run = await ping(a, b, { size, events });
      await run(count);
      const { allocated, messages } = await run(count, true);
      return { bytesPerMessage: allocated / messages };
    });
  },

  /** The same of both adapters in one process. */
  allocationOfMany({ queuePairs, size, rounds }) {
    return alone(async (process) => {
      await process.call('openMany', { queuePairs, size, port: nextPort() });
      await process.call('many', { rounds });
      const { allocated, messages } = await process.call('many', { rounds, sampled: true });
      return { bytesPerMessage: allocated / messages };
    });
  },

  /** Two adapters in one process, each with so many queue pairs, a WRITE on each in turn. */
  many({ queuePairs, size, rounds }) {
    return alone(async (process) => {
      const opened = await process.call('openMany', { queuePairs, size, port: nextPort() });
      const { gbps, retransmittedPackets } = await process.call('many', { rounds });
      return { ...opened, gbps, retransmittedPackets };
    });
  },

  /** WRITEs over many queue pairs in turn, compared with the same over one. */
  turns({ queuePairs, depth, size, rounds, slices }) {
    return alone(async (process) => {
      await process.call('openTurns', { queuePairs, depth, size, port: nextPort() });
      await process.call('turns', { rounds, slices: 1 });
      return process.call('turns', { rounds, slices });
    });
  },

  /** SENDs there and back between two queue pairs of one adapter. */
  loop({ size, count }) {
    return alone(async (process) => {
      await process.call('openLoop', { size, port: nextPort() });
      await process.call('loop', { count: Math.ceil(count / 4) });
      return process.call('loop', { count });
    });
  },

  /** Memory of queue pairs that do nothing. */
  idle({ count }) {
    return alone(async (process) => {
      await process.call('openIdle', { port: nextPort() });
      return process.call('idle', { count });
    });
  },

  /** Creating and destroying, and the memory that remains. */
  churn({ count }) {
    return alone(async (process) => {
      await process.call('openChurn', { port: nextPort() });
      await process.call('churn', { count: Math.ceil(count / 10) });
      const { perSecond, grownBytes } = await process.call('churn', { count, growth: true });
      return { perSecond, grownBytes };
    });
  },

  /** Connects and disconnects by the connection manager. */
  connects({ count, together }) {
    return alone(async (process) => {
      await process.call('openConnecting', { port: nextPort() });
      await process.call('connects', { count: Math.ceil(count / 10), together });
      const { perSecond } = await process.call('connects', { count, together });
      return { perSecond };
    });
  },
});

export const nodeRoce = within('node-roce');
/** With the engine in a thread of its own, or in the program's. */
export const nodeRoceIn = (engine) => within(`node-roce, ${engine}`, engine);

/** node-roce at the ends of a cable, over a link of this kind. */
export const nodeRoceOver = (cable, link, options = {}) => {
  const open = (mtu, rest, execArgv, body) =>
    connected({ mtu, link, ...rest, ...options }, execArgv, body, cable.at(mtu));
  return {
    name: `node-roce, ${link}`,
    missing: () => cable.missing(),
    stream: ({ operation, size, mtu, offload = true, bytes }, { execArgv = [] } = {}) =>
      open(mtu, { offload }, execArgv, async (a, b, remote) => {
        const count = Math.max(depthFor(size), Math.ceil(bytes / size));
        const run = await streamer(a, b, { operation, size, remote });
        await run(Math.ceil(count / 4));
        const { messages, seconds } = await run(count);
        return { gbps: (8e-9 * messages * size) / seconds, messagesPerSecond: messages / seconds };
      }),
    pingpong: ({ size, count, events, mtu = 4096 }, { execArgv = [] } = {}) =>
      open(mtu, { offload: true }, execArgv, async (a, b) => {
        const run = await ping(a, b, { size, events });
        await run(Math.ceil(count / 4));
        const { p50, p99, p999 } = await run(count);
        return { p50, p99, p999 };
      }),
  };
};

async function alone(body) {
  const process = new SideProcess(0, ['--expose-gc']);
  try {
    return await body(process);
  } finally {
    process.kill();
  }
}
