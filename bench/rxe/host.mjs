// A guest whose RoCE is rxe's or ours: they share UDP port 4791, so that one has to go before the next comes.
import { setTimeout as sleep } from 'node:timers/promises';
import { programEnvironment } from '@node-roce/device';
import { LIBRARY, NODE_SIDE } from './image.mjs';

/** Of perftest: device and index of the GID of IPv4. */
const DEVICES = { rxe: '-d rxe0 -x 1', 'roce run': '-x 0' };
const SOCKET = '/run/roce/device.sock';
/** 1.1 s: emulated, a peer may take longer than the 67 ms of perftest, and rxe would send all of its window again. */
const ACK_TIMEOUT = 18;
const PATIENCE = Number(process.env.ROCE_PATIENCE || 1);
/** ms that a program may take. */
const LIMIT = 60_000 * PATIENCE;
/** ms that a device may be there. */
const DEVICE_LIMIT = 30 * LIMIT;

const LOAD = `modprobe rdma_rxe && { rdma link show rxe0/1 > /dev/null 2>&1 || rdma link add rxe0 type rxe netdev eth0; }`;
const UNLOAD = `rdma link delete rxe0 2> /dev/null; ! grep -q ^rdma_rxe /proc/modules || rmmod rdma_rxe`;

/** The words that `roce run` would put before a program. */
const ENVIRONMENT = Object.entries(programEnvironment(LIBRARY, SOCKET, {})).map((pair) => pair.join('='));

/** Words of perftest for a test of perf. */
const wordsOf = ({ verb, measure, size, iters, events }, kind) => ({
  program: `${kind === 'rxe' ? '' : `env ${ENVIRONMENT.join(' ')}`} ib_${verb}_${measure}`,
  options: `${DEVICES[kind]} -F -s ${size} -n ${iters} -u ${ACK_TIMEOUT} ${events ? '-e' : ''}`,
});

/** Average of a program's table: MiB/s, or µs. */
function averageOf(output, { measure, size }) {
  const row = output
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .find(([bytes, count, least]) => bytes === `${size}` && Number(count) > 0 && Number(least) >= 0);
  if (!row) throw new Error(`no figures in ${output}`);
  return measure === 'bw' ? Number(row[3]) : Number(row[4]);
}

/** A guest, and the side that it plays. */
export class Host {
  #kind;
  #device;

  constructor(guest) {
    this.guest = guest;
  }

  /** Makes the guest's RoCE that of `kind`: rxe, node-roce, or a device for programs (roce run). */
  async become(kind) {
    if (this.#kind === kind) return;
    this.#device?.stop();
    await this.#device?.done;
    this.#device = undefined;
    await this.guest.must(kind === 'rxe' ? LOAD : UNLOAD, LIMIT);
    if (kind === 'roce run') await this.#serveDevice();
    this.#kind = kind;
  }

  async #serveDevice() {
    const given = JSON.stringify({ role: 'device', address: this.guest.ip4, path: SOCKET });
    const device = this.guest.spawn(`${NODE_SIDE} '${given}'`, DEVICE_LIMIT);
    this.#device = device;
    for (let left = LIMIT / 100; !device.output.includes('listening'); left--) {
      if (left <= 0) throw new Error(`the device does not listen: ${device.output}`);
      await sleep(100);
    }
  }

  #spawn(role, test, peer, port) {
    if (this.#kind !== 'node-roce') {
      const { program, options } = wordsOf(test, this.#kind);
      return this.guest.spawn(`${program} ${options} -p ${port} ${role === 'client' ? peer : ''}`, LIMIT);
    }
    const address = this.guest.ip4;
    const side = role === 'client' ? { host: peer, address, port } : { host: '0.0.0.0', address, port };
    const played = { ...test, ackTimeout: ACK_TIMEOUT };
    const given = JSON.stringify({ role, test: played, side: { ...side, timeout: LIMIT / 1000 } });
    return this.guest.spawn(`${NODE_SIDE} '${given}'`, LIMIT);
  }

  /** Starts a server; resolves when it listens. */
  async serve(test, port) {
    const program = this.#spawn('server', test, '', port);
    const listens = `i=0; until ss -ltn | grep -q :${port}; do i=$((i+1)); [ $i = 200 ] && exit 1; sleep 0.2; done`;
    const ended = program.done.then(() => ({ code: 1 }));
    const { code } = await Promise.race([this.guest.exec(listens, LIMIT), ended]);
    if (code !== 0) throw new Error(`the server does not listen: ${program.output}`);
    return program;
  }

  /** Starts a client of the guest at `peer`. */
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
   * the processors of the guest were not idle, in s.
   */
  async watch(seconds) {
    const net = '/sys/class/net/eth0/statistics';
    const read = `echo $(cat ${net}/rx_bytes ${net}/tx_bytes ${net}/rx_packets ${net}/tx_packets) $(head -n 1 /proc/stat)`;
    // Of both directions: few ACKs come back to a sender.
    const moved = `$(($(cat ${net}/rx_packets) + $(cat ${net}/tx_packets)))`;
    const script = `s=${moved}; i=0
      until [ $((${moved} - s)) -gt 300 ]; do i=$((i+1)); [ $i = 600 ] && exit 1; sleep 0.05; done
      ${read}; sleep ${seconds}; ${read}`;
    const { code, output } = await this.guest.exec(script, LIMIT);
    if (code !== 0) return undefined;
    const [before, after] = output
      .trim()
      .split('\n')
      .slice(-2)
      .map((line) => line.split(/\s+/));
    const change = (i) => Number(after[i]) - Number(before[i]);
    // rx_bytes tx_bytes rx_packets tx_packets cpu user nice system idle iowait irq softirq; 100 jiffies a second.
    const busy = [5, 6, 7, 10, 11].reduce((sum, i) => sum + change(i), 0) / 100;
    return { bytes: change(0) + change(1), packets: change(2) + change(3), busy };
  }
}
