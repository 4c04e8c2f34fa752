/**
 * A row's measurement of one build, kept open: `run(count)` measures that many messages and may be called
 * again and again, so that two builds can have their turns one after the other.
 */
import { ping, streamer } from '../contenders/node-roce.mjs';
import { connectedPair, nextPort, SideProcess } from '../sides/process.mjs';

/** Ends the processes in order; kills them if they do not. */
async function closeAll(processes) {
  try {
    await Promise.all(processes.map((process) => process.close()));
  } finally {
    for (const process of processes) process.kill();
  }
}

async function paired(options, root, prepare) {
  const { a, b, remote } = await connectedPair(options, { root });
  const session = { close: () => closeAll([a, b]) };
  try {
    session.run = await prepare(a, b, remote);
    return session;
  } catch (error) {
    a.kill();
    b.kill();
    throw error;
  }
}

async function single(root, prepare) {
  const process = new SideProcess(0, ['--expose-gc'], root);
  try {
    return { run: await prepare(process), close: () => closeAll([process]) };
  } catch (error) {
    process.kill();
    throw error;
  }
}

/** Resolve with `{ run(count, sampled), close() }`; `run` resolves with messages, seconds and figures. */
const KINDS = {
  stream({ mtu, offload = true, engine, ...plan }, root) {
    return paired({ mtu, offload, engine }, root, async (a, b, remote) => {
      const run = await streamer(a, b, { ...plan, remote });
      return async (count, sampled) => {
        const result = await run(count, sampled);
        const perSecond = result.messages / result.seconds;
        return { ...result, perSecond, gbps: 8e-9 * plan.size * perSecond };
      };
    });
  },

  pingpong(plan, root) {
    return paired({ mtu: 4096, offload: true }, root, (a, b) => ping(a, b, plan));
  },

  many(plan, root) {
    const { queuePairs, depth = 1 } = plan;
    return single(root, async (process) => {
      await process.call('openMany', { ...plan, port: nextPort() });
      return async (count, sampled) => {
        const rounds = Math.max(1, Math.round(count / queuePairs / depth));
        const result = await process.call('many', { rounds, sampled });
        // Slices of equal CPU time, however busy the machine.
        return { ...result, seconds: result.cpuSeconds };
      };
    });
  },

  churn(_plan, root) {
    return single(root, async (process) => {
      await process.call('openChurn', { port: nextPort() });
      return (count) => process.call('churn', { count });
    });
  },
};

/** Opens a row's session with the build in `root`. */
export function openSession({ kind, plan }, root) {
  return KINDS[kind](plan, root);
}
