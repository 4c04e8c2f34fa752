/** node-roce over its UDP link: two processes, each with a device, on 127.0.0.1 and 127.0.0.2. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { pinned } from '../pinning.mjs';

const SIDE = fileURLToPath(new URL('../sides/node-roce.mjs', import.meta.url));
let port = 14_800;

class Process {
  constructor(side, nodeArgs) {
    const [execPath, execArgv] = pinned(side, process.execPath, nodeArgs);
    const stdio = ['ignore', 'ignore', 'inherit', 'ipc'];
    this.child = fork(SIDE, { execPath, execArgv, serialization: 'advanced', stdio });
  }

  async call(command, options = {}) {
    this.child.send({ command, ...options });
    const [message] = await Promise.race([
      once(this.child, 'message'),
      once(this.child, 'exit').then(() => [{ error: 'the process ended' }]),
    ]);
    if (message.error) throw new Error(`node-roce: ${message.error}`);
    return message.result;
  }
}

async function connected(options, execArgv, body) {
  const [a, b] = [new Process(0, execArgv), new Process(1, execArgv)];
  try {
    port = 14_800 + ((port + 1) % 100);
    const left = await a.call('open', { ...options, port, address: '127.0.0.1' });
    const right = await b.call('open', { ...options, port, address: '127.0.0.2' });
    await a.call('connect', { peer: right.data });
    await b.call('connect', { peer: left.data });
    const result = await body(a, b, right.remote);
    // A process that ends by itself writes its profile.
    await Promise.all([a, b].map((side) => Promise.all([once(side.child, 'exit'), side.call('close')])));
    return result;
  } finally {
    a.child.kill();
    b.child.kill();
  }
}

export const nodeRoce = {
  name: 'node-roce',
  missing: () => undefined,

  /** One way, with warm-up; figures of the requester's clock. */
  stream({ operation, size, mtu, offload = true, bytes }, { execArgv = [] } = {}) {
    return connected({ mtu, offload }, execArgv, async (a, b, remote) => {
      const depth = Math.max(2, Math.min(256, Math.floor((16 << 20) / size)));
      const count = Math.max(depth, Math.ceil(bytes / size));
      const plan = { operation, size, depth, remote };
      const run = async (messages) => {
        const rounded = Math.ceil(messages / depth) * depth;
        const [result] = await Promise.all([
          a.call('stream', { ...plan, count: messages }),
          operation === 'SEND' ? b.call('absorb', { size, count: rounded }) : undefined,
        ]);
        return result;
      };
      await run(Math.ceil(count / 4));
      const before = [await a.call('mark'), await b.call('mark')];
      const { messages, seconds } = await run(count);
      const after = [await a.call('mark'), await b.call('mark')];
      const packets = messages * Math.max(1, Math.ceil(size / mtu));
      const cpu = after[0].cpu - before[0].cpu + after[1].cpu - before[1].cpu;
      return {
        gbps: (8e-9 * messages * size) / seconds,
        messagesPerSecond: messages / seconds,
        cpuNsPerPacket: (cpu * 1000) / packets,
        youngCollections: [after[0].young - before[0].young, after[1].young - before[1].young],
        messages,
      };
    });
  },

  /** 64-byte SEND and its answer; µs. */
  pingpong({ size, count, events }, { execArgv = [] } = {}) {
    return connected({ mtu: 4096, offload: true }, execArgv, async (a, b) => {
      await a.call('receives', { size, count: 4 });
      await b.call('receives', { size, count: 4 });
      const run = async (messages) => {
        const [result] = await Promise.all([
          a.call('echo', { size, count: messages, events, first: true }),
          b.call('echo', { size, count: messages, events, first: false }),
        ]);
        return result;
      };
      await run(Math.ceil(count / 4));
      return run(count);
    });
  },

  /** Bytes that V8 allocates for a SEND of 64 B, sampled; and the young collections of both sides meanwhile. */
  allocation({ count }) {
    return connected({ mtu: 4096, offload: true }, [], async (a, b) => {
      const plan = { operation: 'SEND', size: 64, depth: 256 };
      const run = async (messages, sampled) => {
        const rounded = Math.ceil(messages / plan.depth) * plan.depth;
        const [result] = await Promise.all([
          a.call('stream', { ...plan, count: messages, sampled }),
          b.call('absorb', { size: 64, count: rounded }),
        ]);
        return result;
      };
      await run(Math.ceil(count / 4), false);
      const before = [await a.call('mark'), await b.call('mark')];
      await run(count, false);
      const after = [await a.call('mark'), await b.call('mark')];
      const { allocated, messages } = await run(count, true);
      return {
        bytesPerMessage: allocated / messages,
        youngCollections: after.map(({ young }, i) => young - before[i].young),
      };
    });
  },

  /** Two adapters in one process, each with so many queue pairs, a WRITE on each in turn. */
  many(plan) {
    return alone('many', plan);
  },

  /** Creating and destroying, and what is left of it. */
  churn(plan) {
    return alone('churn', plan);
  },
};

async function alone(command, plan) {
  const process = new Process(0, ['--expose-gc']);
  try {
    port = 14_800 + ((port + 1) % 100);
    return await process.call(command, { ...plan, port });
  } finally {
    process.child.kill();
  }
}
