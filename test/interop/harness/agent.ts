/** The verbs program in the guest (guest/rverbs): libibverbs calls, step by step. */
import type { GuestProcess } from './exec.ts';
import type { Guest } from './guest.ts';

type Value = string | number | bigint | boolean;
export type Keys = Record<string, Value | undefined>;

export interface AgentCompletion {
  wrId: number;
  status: number;
  statusName: string;
  qpn: number;
  opcode?: string;
  byteLen?: number;
  imm?: number;
  invalidatedRkey?: number;
  srcQp?: number;
  flags?: string[];
}

/** The program in the guest that calls verbs on request. */
export class VerbsAgent {
  readonly #process: GuestProcess;
  #buffered = '';
  #waiting: ((line: string) => void)[] = [];

  private constructor(process: GuestProcess) {
    this.#process = process;
    process.onStdout = (text) => {
      this.#buffered += text;
      for (let at = this.#buffered.indexOf('\n'); at >= 0; at = this.#buffered.indexOf('\n')) {
        const line = this.#buffered.slice(0, at);
        this.#buffered = this.#buffered.slice(at + 1);
        this.#waiting.shift()?.(line);
      }
    };
    process.exited
      .catch(() => {})
      .then(() => {
        for (const take of this.#waiting) take(`{"ok":false,"error":"the agent ended","errno":0}`);
        this.#waiting = [];
      });
  }

  /** Starts it with rxe0 open on the GID of that IP version, and completion queue 0. */
  static async start(
    guest: Guest,
    { gid = 1, depth = 1024 }: { gid?: number; depth?: number } = {},
  ): Promise<VerbsAgent> {
    const agent = new VerbsAgent(guest.spawn('exec rverbs'));
    await agent.call('open', { gid });
    await agent.call('cq', { depth });
    return agent;
  }

  /** Sends one command; throws the agent's error when it fails. */
  async call<T = Record<string, never>>(command: string, keys: Keys = {}): Promise<T> {
    const words = Object.entries(keys)
      .filter(([, value]) => value !== undefined)
      .map(([key, value]) => `${key}=${value === true ? 1 : value === false ? 0 : value}`);
    const reply = new Promise<string>((resolve) => this.#waiting.push(resolve));
    this.#process.write(`${[command, ...words].join(' ')}\n`);
    const { ok, ...result } = JSON.parse(await reply) as { ok: boolean; error?: string; errno?: number };
    if (!ok) throw Object.assign(new Error(`rverbs ${command}: ${result.error}`), { errno: result.errno });
    return result as T;
  }

  async mr(keys: Keys): Promise<{ mr: number; address: bigint; lkey: number; rkey: number }> {
    const made = await this.call<{ mr: number; address: string; lkey: number; rkey: number }>('mr', keys);
    return { ...made, address: BigInt(made.address), lkey: Number(made.lkey), rkey: Number(made.rkey) };
  }

  async sha256(mr: number, offset?: number, length?: number): Promise<string> {
    return (await this.call<{ sha256: string }>('sha256', { mr, offset, length })).sha256;
  }

  async poll(count = 1, timeout = 10_000): Promise<AgentCompletion[]> {
    return (await this.call<{ completions: AgentCompletion[] }>('poll', { count, timeout })).completions;
  }

  close(): void {
    this.#process.kill();
  }
}
