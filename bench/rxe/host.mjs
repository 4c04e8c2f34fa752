// A side whose RoCE is rxe's or ours: they share UDP port 4791, so that one has to go before the next comes.
import { setTimeout as sleep } from 'node:timers/promises';
import { programEnvironment } from '@node-roce/device';
import { PATIENCE } from '../../test/tiers/patience.mjs';

/** Of perftest: device and index of the GID of IPv4. */
const DEVICES = { rxe: '-d rxe0 -x 1', 'roce run': '-x 0' };
/** 1.1 s: emulated, a peer may take longer than the 67 ms of perftest, and rxe would send all of its window again. */
const ACK_TIMEOUT = 18;
/** ms that a program may take. */
const LIMIT = 60_000 * PATIENCE;
/** ms that a device may be there. */
const DEVICE_LIMIT = 30 * LIMIT;

/** Words of perftest for a test of perf. */
const wordsOf = ({ verb, measure, size, iters, events }, kind) => ({
  program: `ib_${verb}_${measure}`,
  options: `${DEVICES[kind]} -F -s ${size} -n ${iters} -u ${ACK_TIMEOUT} ${events ? '-e' : ''}`,
});

/** Average of a program's table: MiB/s, or µs; undefined where the program found no clock, as on a busy machine. */
function averageOf(output, { measure, size }) {
  const row = output
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .find(([bytes, count, least]) => bytes === `${size}` && Number(count) > 0 && Number(least) >= 0);
  if (!row && !/^ *\d+ +\d+ +(inf|0\.00)/m.test(output)) throw new Error(`no figures in ${output}`);
  const figure = row && Number(measure === 'bw' ? row[3] : row[4]);
  return figure > 0 ? figure : undefined;
}

/** A side of the bench, and what it plays. A side (emulated.mjs, um.mjs) knows where its programs run. */
export class Host {
  #kind;
  #device;

  constructor(side) {
    this.side = side;
  }

  /** Makes the side's RoCE that of `kind`: rxe, node-roce, or a device for programs (roce run). */
  async become(kind) {
    if (this.#kind === kind) return;
    this.#device?.stop();
    await this.#device?.done;
    this.#device = undefined;
    await this.side.become(kind === 'rxe', LIMIT);
    if (kind === 'roce run') await this.#serveDevice();
    this.#kind = kind;
  }

  async #serveDevice() {
    const given = JSON.stringify({ role: 'device', address: this.side.ip4, path: this.side.socket });
    const device = this.side.spawn(`${this.side.node} '${given}'`, DEVICE_LIMIT);
    this.#device = device;
    for (let left = LIMIT / 100; !device.output.includes('listening'); left--) {
      if (left <= 0) throw new Error(`the device does not listen: ${device.output}`);
      await sleep(100);
    }
  }

  /** The words that `roce run` would put before a program. */
  #environment() {
    const variables = Object.entries(programEnvironment(this.side.library, this.side.socket, {}));
    return `env ${variables.map((pair) => pair.join('=')).join(' ')}`;
  }

  #spawn(role, test, peer, port) {
    if (this.#kind !== 'node-roce') {
      const { program, options } = wordsOf(test, this.#kind);
      const environment = this.#kind === 'rxe' ? '' : this.#environment();
      const words = `${environment} ${program} ${options} -p ${port} ${role === 'client' ? peer : ''}`;
      return this.side.spawn(words, LIMIT);
    }
    const address = this.side.ip4;
    const side = role === 'client' ? { host: peer, address, port } : { host: '0.0.0.0', address, port };
    const played = { ...test, ackTimeout: ACK_TIMEOUT };
    const given = JSON.stringify({ role, test: played, side: { ...side, timeout: LIMIT / 1000 } });
    return this.side.spawn(`${this.side.node} '${given}'`, LIMIT);
  }

  /** Starts a server; resolves when it listens. */
  async serve(test, port) {
    const program = this.#spawn('server', test, '', port);
    const listens = `i=0; until ss -ltn | grep -q :${port}; do i=$((i+1)); [ $i = 200 ] && exit 1; sleep 0.2; done`;
    const ended = program.done.then(() => ({ code: 1 }));
    const { code } = await Promise.race([this.side.exec(listens, LIMIT), ended]);
    if (code !== 0) throw new Error(`the server does not listen: ${program.output}`);
    return program;
  }

  /** Starts a client of the side at `peer`. */
  call(test, peer, port) {
    return this.#spawn('client', test, peer, port);
  }

  /** The figure that a client printed: MiB/s or µs, the median of a latency. */
  figure(output, test) {
    if (this.#kind !== 'node-roce') return averageOf(output, test);
    const { runs } = JSON.parse(output.trim().split('\n').at(-1));
    return test.measure === 'bw' ? runs[0].average : runs[0].typical;
  }

  /**
   * Waits until packets move, and measures for `seconds` from then on: bytes and packets of both directions, and the time that
   * the side's processors worked for it, in s. Undefined where no packets move, or for less time.
   */
  async watch(seconds) {
    const read = async () => ({ ...(await this.side.traffic()), busy: await this.side.processorTime() });
    // Of both directions: few ACKs come back to a sender.
    const first = (await read()).packets;
    for (let left = LIMIT / 100; (await this.side.traffic()).packets - first < 300; left--) {
      if (left <= 0) return undefined;
      await sleep(50);
    }
    const before = await read();
    await sleep(seconds * 1000);
    const after = await read();
    const change = (key) => after[key] - before[key];
    if (change('busy') <= 0) return undefined; // its programs ended meanwhile
    return { bytes: change('bytes'), packets: change('packets'), busy: change('busy') };
  }
}
