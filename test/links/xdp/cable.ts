/** Peers of test/links/xdp/peer.mjs in two network namespaces, with a cable between them. */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { OpenOptions } from '@node-roce/verbs-api';
import { onTestFinished } from 'vitest';
import { ShapedCable } from '../shaped/network.ts';

export interface PeerOptions {
  device: OpenOptions;
  requests: number;
  bytes: number;
  mtu?: number;
  payload?: number[];
}

/** The device of a peer, as it describes it. */
export interface PeerOpened {
  type: string;
  data: Record<string, unknown>;
  link: string;
  limitations: string[];
  activeMtu: number;
}

export interface PeerResult {
  counts: Record<'SEND' | 'RDMA_WRITE' | 'RDMA_READ' | 'RECV', number>;
  wrong: number;
  link: Record<string, number>;
  icrcErrors: number;
  retransmittedPackets: number;
}

/** Makes the cable; undefined without root, where ROCE_ROOT_TESTS makes that an error. */
export function makeCable(name: string): ShapedCable | undefined {
  return ShapedCable.make(`${name}-${process.pid}`, (why) => {
    if (process.env.ROCE_ROOT_TESTS) throw new Error(why);
    console.warn(`the xdp link is not tested, for want of a network namespace: ${why}`);
  });
}

/** A program in a network namespace that talks in lines of JSON. */
export class Program {
  readonly child: ChildProcess;
  /** How it ended: the exit code, or the signal's name. */
  readonly ended: Promise<number | string>;
  readonly #lines: AsyncIterator<string>;
  readonly #what: string;
  #stderr = '';

  /** @param before a command that the program is run by, as `setpriv …` */
  constructor(namespace: string, script: string, argument: unknown, before: readonly string[] = []) {
    this.#what = `${script} in ${namespace}`;
    const program = join(import.meta.dirname, script);
    const command = [...before, process.execPath, program, JSON.stringify(argument)];
    this.child = spawn('ip', ['netns', 'exec', namespace, ...command], {
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.child.stderr!.setEncoding('utf8').on('data', (text) => {
      this.#stderr += text;
    });
    this.ended = new Promise((resolve) =>
      this.child.once('close', (code, signal) => resolve(code ?? signal!)),
    );
    this.#lines = createInterface({ input: this.child.stdout! })[Symbol.asyncIterator]();
    onTestFinished(() => void this.child.kill('SIGKILL'));
  }

  tell(what: unknown): void {
    this.child.stdin!.write(`${JSON.stringify(what)}\n`);
  }

  async hear<T>(type: string): Promise<T> {
    const { value, done } = await this.#lines.next();
    if (done) throw new Error(`${this.#what} ended (${await this.ended}) before "${type}": ${this.#stderr}`);
    const message = JSON.parse(value);
    if (message.type !== type) throw new Error(`${this.#what}: in place of "${type}": ${value}`);
    return message;
  }

  /** Waits for an end without an error. */
  async end(): Promise<void> {
    const how = await this.ended;
    if (how !== 0) throw new Error(`${this.#what} ended with ${how}: ${this.#stderr}`);
  }
}

/** Runs two peers against each other, each at an end of the cable: the first at the first one unless `ends` has others. */
export async function exchange(
  cable: ShapedCable,
  peers: readonly [PeerOptions, PeerOptions],
  meanwhile?: () => Promise<void>,
  ends: readonly [0 | 1, 0 | 1] = [0, 1],
): Promise<{ opened: PeerOpened[]; results: PeerResult[] }> {
  const programs = peers.map((peer, i) => new Program(cable.ends[ends[i]].namespace, 'peer.mjs', peer));
  const opened = await Promise.all(programs.map((program) => program.hear<PeerOpened>('data')));
  for (const [i, program] of programs.entries()) program.tell(opened[1 - i].data);
  for (const program of programs) await program.hear('connected');
  for (const program of programs) program.tell('begin');
  await meanwhile?.();
  for (const program of programs) await program.hear('done');
  for (const program of programs) program.tell('end');
  const results = await Promise.all(programs.map((program) => program.hear<PeerResult>('result')));
  for (const program of programs) await program.end();
  return { opened, results };
}
