/** A side of a measurement (sides/node-roce.mjs) as a process of its own, and two of them connected. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { pinned } from '../pinning.mjs';

const SIDE = fileURLToPath(new URL('node-roce.mjs', import.meta.url));
const FIRST_PORT = 14_000;
const PORTS = 900;
// Two benches at once begin at different ports.
let opened = process.pid;

/** A UDP port for one measurement; it comes again after 900. */
export function nextPort() {
  return FIRST_PORT + (opened++ % PORTS);
}

/** A side of a benchmark in a process of its own. */
export class SideProcess {
  /**
   * @param side 0 or 1: its processor
   * @param root directory of the checkout whose build is measured; undefined: this one
   * @param namespace network namespace that it is in; undefined: this one's
   */
  constructor(side, execArgv = [], root = undefined, namespace = undefined) {
    const command = pinned(side, process.execPath, execArgv);
    const [execPath, args] =
      namespace === undefined ? command : ['ip', ['netns', 'exec', namespace, command[0], ...command[1]]];
    const stdio = ['ignore', 'ignore', 'inherit', 'ipc'];
    this.child = fork(SIDE, root === undefined ? [] : [root], {
      execPath,
      execArgv: args,
      serialization: 'advanced',
      stdio,
    });
    this.ended = once(this.child, 'exit');
  }

  /** Rejects with the error's stack as text if the command fails or the process ends. */
  async call(command, options = {}) {
    this.child.send({ command, ...options });
    const [message] = await Promise.race([
      once(this.child, 'message'),
      this.ended.then(() => [{ error: 'the process ended' }]),
    ]);
    if (message.error) throw new Error(`node-roce: ${message.error}`);
    return message.result;
  }

  /** A process that ends by itself writes its profile. */
  async close() {
    if (this.child.exitCode === null) await Promise.all([this.ended, this.call('close')]);
  }

  kill() {
    this.child.kill();
  }
}

/** Two sides with a device each, on 127.0.0.1 and 127.0.0.2 or at the ends of a cable, and a connected queue pair. */
export async function connectedPair(options, { execArgv, root, ends } = {}) {
  const a = new SideProcess(0, execArgv, root, ends?.namespaces[0]);
  const b = new SideProcess(1, execArgv, root, ends?.namespaces[1]);
  const [here, there] = ends?.addresses ?? ['127.0.0.1', '127.0.0.2'];
  try {
    const port = nextPort();
    const left = await a.call('open', { ...options, port, address: here });
    const right = await b.call('open', { ...options, port, address: there });
    await a.call('connect', { peer: right.data });
    await b.call('connect', { peer: left.data });
    return { a, b, remote: right.remote };
  } catch (error) {
    a.kill();
    b.kill();
    throw error;
  }
}
