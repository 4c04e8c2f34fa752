/** Senders, each with one connection to one receiver, through one port of a switch that marks. */
import {
  CONNECTION_DEFAULTS,
  createRandom,
  EngineDevice,
  EngineEndpoint,
  Network,
  Wire,
  type WireOptions,
} from '@node-roce/sim';
import type { Congestion } from '@node-roce/transport';
import { gidFromText } from '@node-roce/wire';

const MESSAGE = 64 * 1024;
const DEPTH = 16;

export interface SharedPortOptions {
  senders: number;
  seed: number;
  opcode: 'RDMA_WRITE' | 'RDMA_READ';
  congestion: Partial<Congestion>;
  /** Bits per second of every way, the port too. */
  line: number;
  port: Omit<WireOptions, 'rate'>;
  /** When each sender begins, µs; 0 by default. */
  starts?: readonly number[];
  pathMtu?: number;
}

/** Every way takes 5 µs. */
export class SharedPort {
  readonly network: Network;
  readonly port: Wire;
  readonly receiver: EngineDevice;
  readonly senders: EngineEndpoint[];
  readonly #options: SharedPortOptions;
  readonly #posted: number[];
  /** Messages that ended, of each sender. */
  readonly done: number[];

  constructor(options: SharedPortOptions) {
    const { senders, seed, congestion, line, port, pathMtu = 1024 } = options;
    this.#options = options;
    this.network = new Network(seed);
    this.network.record = false;
    this.port = new Wire({ delay: 1, rate: line, ...port }, createRandom(seed));
    const common = { arenaBytes: MESSAGE, congestion, checkEvery: 4096 };
    this.receiver = new EngineDevice({
      ...common,
      gid: gidFromText('10.0.0.100'),
      seed,
      receiveBuffer: 1 << 26,
    });
    this.network.add(this.receiver);
    this.senders = Array.from({ length: senders }, (_, i) => {
      const gid = gidFromText(`10.0.0.${i + 1}`);
      return new EngineEndpoint({
        ...common,
        gid,
        psn: 1000 * i,
        seed: seed * 31 + i,
        receiveBuffer: 1 << 26,
      });
    });
    const connection = { ...CONNECTION_DEFAULTS, pathMtu, timeout: 14, maxRdAtomic: 16, maxDestRdAtomic: 16 };
    this.senders.forEach((sender, i) => {
      this.network.add(sender);
      const qp = this.receiver.createQp({ service: 'RC', psn: 77 * i });
      qp.connect(sender.info, connection);
      sender.connect(qp.info, connection);
      this.#programs.push(options.opcode === 'RDMA_READ' ? qp : sender);
      // READs are asked for by the receiver: what passes the port is data in any case.
      this.network.link(sender, this.receiver, { rate: line, delay: 4 }, this.port);
      this.network.link(this.receiver, sender, { rate: line, delay: 5 });
    });
    this.#posted = this.senders.map(() => 0);
    this.done = this.senders.map(() => 0);
  }

  readonly #programs: Pick<EngineEndpoint, 'postSend' | 'pollSend'>[] = [];

  /** Runs until `end` µs; `look` is called at each step. */
  run(end: number, look: (now: number) => void = () => {}): void {
    const { starts = [], opcode } = this.#options;
    const step = () => {
      look(this.network.now);
      this.#programs.forEach((program, i) => {
        for (const { status } of program.pollSend()) {
          if (status !== 'SUCCESS')
            throw new Error(`sender ${i} ended with ${status} at ${this.network.now} µs`);
          this.done[i]++;
        }
        if (this.network.now < (starts[i] ?? 0)) return;
        while (this.#posted[i] - this.done[i] < DEPTH) {
          program.postSend({ wrId: this.#posted[i]++, opcode, offset: 0, length: MESSAGE, remoteOffset: 0 });
        }
      });
      return false;
    };
    // A step at every start, whether anything else happens or not.
    for (const at of [...starts.filter((at) => at > this.network.now && at < end), end].sort(
      (a, b) => a - b,
    )) {
      this.network.run(step, at);
      this.network.now = at;
      step();
    }
  }

  /** Bytes of the messages that ended so far, of each sender. */
  get delivered(): number[] {
    return this.done.map((messages) => messages * MESSAGE);
  }
}
