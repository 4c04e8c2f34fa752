// One of several programs at an address: answers its peers, asks them, and reports how that went. members.ts starts it, and speaks to it over
// IPC: { id, name, args } → { id, result } or { id, error }.
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, listen } from '@node-roce/rdmacm';
import { openDevice } from '@node-roce/verbs-api';

const { index, address, udpPort, servicePorts, pace } = JSON.parse(process.argv[2]);

/** Longer than this, ms, this program did not get the processor. */
const LATE = 3;
/** When it did not, [from, to] in performance.now(): of the last seconds. */
const pauses = [];
let seen = performance.now();
setInterval(() => {
  const now = performance.now();
  if (now - seen > LATE) pauses.push([seen, now]);
  if (pauses.length > 2000) pauses.splice(0, 1000);
  seen = now;
}, 1);

/** How much of the time since `start` this program did not get the processor. */
function lost(start) {
  const now = performance.now();
  const all = now - seen > LATE ? [...pauses, [seen, now]] : pauses;
  return all.reduce((sum, [from, to]) => sum + Math.max(0, Math.min(to, now) - Math.max(from, start)), 0);
}

// Without probes a packet that is lost waits for the ACK timer, and can't be missed. The timer is long (4.3 s), since a busy machine may
// leave a program without the processor for longer than the usual half of a second.
const recovery = { probes: false };
const ACK_TIMEOUT = 20;
const options = { port: udpPort, shared: true, link: 'udp', recovery };
process.send({ name: 'opening' });
const device = await openDevice({ address, ...options });
const own = servicePorts[index];
const listener = await listen({ address, port: own, device });

/** Connections: { peer, side, qp, rounds, stall, error, dropped }. */
const flows = new Set();

function flowOf(peer, side, qp) {
  const flow = { peer, side, qp, rounds: 0, stall: 0, retransmitted: 0, error: undefined, dropped: false };
  flows.add(flow);
  return flow;
}

/** Runs one side of a connection until that ends, which is an error unless the peer was dropped. */
async function run(flow, loop) {
  try {
    await loop();
    throw new Error('the peer closed the connection');
  } catch (error) {
    flow.error = `${error.code ?? ''} ${error.message}`;
  }
}

/** Notes how long a round took from `start`, less the time in which one of the two programs had no processor. */
function note(flow, start, elsewhere = 0) {
  const stall = performance.now() - start - lost(start) - elsewhere;
  flow.stall = Math.max(flow.stall, stall);
  flow.rounds++;
}

// A message carries its time and sender, the answer how long its sender has had no processor since.
async function answer(connection) {
  const first = await connection.receive();
  if (!first) return;
  const peer = new Float64Array(first.slice().buffer)[1];
  const flow = flowOf(peer, 'server', connection.qp);
  await run(flow, async () => {
    for (let message = first; message; message = await connection.receive()) {
      const [left] = new Float64Array(message.slice().buffer);
      const text = new Uint8Array(Float64Array.of(lost(left - performance.timeOrigin), index).buffer);
      await connection.send(text);
      flow.rounds++;
    }
  });
}

async function ask(connection, peer) {
  const flow = flowOf(peer, 'client', connection.qp);
  await run(flow, async () => {
    for (;;) {
      const start = performance.now();
      await connection.send(new Uint8Array(Float64Array.of(start + performance.timeOrigin, index).buffer));
      const message = await connection.receive();
      if (!message) return;
      const [elsewhere, who] = new Float64Array(message.slice().buffer);
      if (who !== peer) throw new Error(`the answer is that of ${who}`);
      note(flow, start, elsewhere);
      await sleep(pace);
    }
  });
}

/** WRITEs to a peer that is no program of this kind. */
async function write({ qp, cq, mr }, remote) {
  const flow = flowOf('guest', 'client', qp);
  await run(flow, async () => {
    for (;;) {
      const start = performance.now();
      qp.postSend({ opcode: 'RDMA_WRITE', signaled: true, sgList: [{ mr }], remote });
      const { status } = await cq.next();
      if (status !== 'SUCCESS') throw new Error(status);
      note(flow, start);
      await sleep(2 * pace);
    }
  });
}

const prepared = [];

const commands = {
  async connectTo(peer, count) {
    const target = `${address}:${servicePorts[peer]}`;
    const one = () => connect(target, { source: address, device, ackTimeout: ACK_TIMEOUT });
    for (const connection of await Promise.all(Array.from({ length: count }, one)))
      void ask(connection, peer);
  },

  /** Queue pairs for a peer without a connection manager; `reach` connects them. */
  async prepare(count) {
    const pd = await device.allocPd();
    for (let i = 0; i < count; i++) {
      const cq = await device.createCq(4);
      const qp = await pd.createQp({ sendCq: cq });
      prepared.push({ qp, cq, mr: await pd.registerMr(new Uint8Array(8)) });
    }
    return prepared.map(({ qp }) => ({ qpNum: qp.qpNum, psn: qp.initialPsn }));
  },

  async reach(points) {
    for (const [i, { qpNum, psn, gid, addr, rkey, pathMtu }] of points.entries()) {
      await prepared[i].qp.connect({ qpNum, psn, gid }, { pathMtu, timeout: ACK_TIMEOUT });
      void write(prepared[i], { addr: BigInt(addr), rkey });
    }
  },

  /** A peer was killed: what is connected to it may end. */
  drop(peer) {
    for (const flow of flows) {
      if (flow.peer !== peer) continue;
      flows.delete(flow);
      flow.qp.modify({ qpState: 'ERR' }).catch(() => {});
    }
  },

  /** Returns the counts of each connection since the last report. */
  async report() {
    const report = [];
    for (const flow of flows) {
      const { peer, side, rounds, stall, error } = flow;
      const counts =
        error === undefined ? await flow.qp.counters() : { retransmittedPackets: flow.retransmitted };
      const retransmitted = counts.retransmittedPackets - flow.retransmitted;
      report.push({ peer, side, rounds, stall, error, retransmitted });
      Object.assign(flow, { rounds: 0, stall: 0, retransmitted: counts.retransmittedPackets });
    }
    return report;
  },

  async counters() {
    return (await device.counters()).link;
  },

  async close() {
    await device.close();
    process.disconnect();
    process.exit(0);
  },
};

process.on('message', async ({ id, name, args }) => {
  try {
    process.send({ id, result: await commands[name](...args) });
  } catch (error) {
    process.send({ id, error: `${error.code ?? ''} ${error.message}` });
  }
});
process.on('disconnect', () => process.exit(1));
process.send({ name: 'ready' });
for await (const connection of listener) void answer(connection);
