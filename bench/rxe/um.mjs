// The sides of the bench without emulation: two network namespaces with a cable between them. At a side's end of the cable is rxe, in a guest
// under User-Mode Linux, or node-roce, in programs of this machine.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Guest } from '../../test/capture/real/guest.mjs';
import { buildGuest } from '../../test/interop/image.mjs';
import { EXEC_PORT, umCommand } from '../../test/interop/um/guest.mjs';
import { PATIENCE } from '../../test/tiers/patience.mjs';

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
/** ms until a guest takes commands. */
const BOOT = 60_000 * PATIENCE;
/** Of the times in /proc/PID/stat, a second. */
const TICKS = 100;
/** The side's end of the cable to the other one, in the side's namespace. */
const LINK = 'cable';
/** The guest's end of the cable for commands, in the side's namespace. */
const CONTROL = 'control';

const run = (command, ...args) => execFileSync(command, args, { encoding: 'utf8', stdio: 'pipe' });

/** Makes a pair of devices without offloads, so that what passes is what a wire would carry, and moves them to namespaces. */
function addCable(mtu, ...ends) {
  const size = ['mtu', `${mtu}`];
  run('ip', 'link', 'add', 'end0', ...size, 'type', 'veth', 'peer', 'name', 'end1', ...size);
  const off = ['tx', 'tso', 'gso', 'gro'].flatMap((offload) => [offload, 'off']);
  for (const [i, { name, pid }] of ends.entries()) {
    run('ethtool', '-K', `end${i}`, ...off);
    run('ip', 'link', 'set', `end${i}`, 'addrgenmode', 'none', 'name', name, 'netns', `${pid}`);
    run('nsenter', `--net=/proc/${pid}/ns/net`, 'ip', 'link', 'set', name, 'up');
  }
}

/** Processor time that processes and all that descend from them have used, in s. */
function timeOf(roots) {
  const all = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
          .replace(/^.*\) /s, '')
          .split(' ');
        return [
          { pid: Number(pid), parent: Number(fields[1]), ticks: Number(fields[11]) + Number(fields[12]) },
        ];
      } catch {
        return []; // It has ended.
      }
    });
  const found = new Set(roots);
  for (let before = 0; before !== found.size; ) {
    before = found.size;
    for (const { pid, parent } of all) if (found.has(parent)) found.add(pid);
  }
  return all.filter(({ pid }) => found.has(pid)).reduce((sum, { ticks }) => sum + ticks, 0) / TICKS;
}

class Side {
  node = `${process.execPath} ${path('side.mjs')}`;
  library = path('../../native/ibverbs/build/libibverbs.so.1');
  peer;
  #given;
  #number;
  #holder;
  #guest;
  #programs = new Set();

  /** @param {{ release: string, kernel: string, image: string, directory: string, mtu: number }} given */
  constructor(number, given) {
    this.#number = number;
    this.#given = given;
    this.ip4 = `10.78.0.${number}`;
    this.socket = join(given.directory, `device-${number}.sock`);
  }

  async open() {
    // With its end of standard input, this process's end is that of the namespace.
    this.#holder = spawn('unshare', ['--net', 'sh', '-c', 'ip link set lo up; echo up; read end'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    await once(this.#holder.stdout, 'data');
    const command = `command${this.#number}`;
    addCable(1500, { name: command, pid: process.pid }, { name: CONTROL, pid: this.#holder.pid });
    run('ip', 'addr', 'add', `10.79.${this.#number}.1/24`, 'dev', command);
  }

  get end() {
    return { name: LINK, pid: this.#holder.pid };
  }

  #inside(...command) {
    return ['nsenter', `--net=/proc/${this.#holder.pid}/ns/net`, ...command];
  }

  #run(...command) {
    const [program, ...args] = this.#inside(...command);
    return run(program, ...args);
  }

  /** Makes the side rxe, in a guest, or programs of this machine. */
  async become(isRxe) {
    if (isRxe === (this.#guest !== undefined)) return;
    if (this.#guest) {
      const gone = once(this.#guest.qemu, 'exit');
      this.#guest.qemu.kill('SIGKILL');
      await gone;
      this.#guest = undefined;
    }
    this.#run('ip', 'addr', 'flush', 'dev', LINK);
    if (isRxe) await this.#boot();
    else this.#run('ip', 'addr', 'add', `${this.ip4}/24`, 'dev', LINK);
    // Its address has moved to another card.
    await this.peer.exec('ip neigh flush all');
  }

  async #boot() {
    const { release, kernel, image, directory, mtu } = this.#given;
    const number = this.#number;
    const { command, args, env } = umCommand({
      ...{ kernel, image, name: `bench${number}`, directory },
      cards: [
        { device: LINK, mtu, mac: `52:54:00:78:00:0${number}` },
        { device: CONTROL, mtu: 1500, mac: `52:54:00:79:00:0${number}` },
      ],
      words: [
        ...[`guest.ip4=${this.ip4}/24`, `guest.ip6=fd78::${number}/64`, `guest.mtu=${mtu}`],
        `guest.control=10.79.${number}.2/24`,
      ],
    });
    const log = openSync(join(directory, `console-${number}`), 'w');
    const tethered = ['--pdeathsig', 'KILL', ...this.#inside(command, ...args)];
    const guest = spawn('setpriv', tethered, { stdio: ['ignore', log, log], env });
    closeSync(log);
    this.#guest = new Guest(number === 1 ? 'a' : 'b', release, EXEC_PORT, guest, `10.79.${number}.2`);
    for (const end = Date.now() + BOOT; ; await sleep(100)) {
      if ((await this.#guest.exec('rdma link show rxe0/1', 5000)).code === 0) return;
      if (Date.now() > end || guest.exitCode !== null)
        throw new Error(`no guest: ${readFileSync(join(directory, `console-${number}`), 'utf8')}`);
    }
  }

  spawn(command, timeout = BOOT) {
    if (this.#guest) return this.#guest.spawn(command, timeout);
    const [program, ...args] = this.#inside('sh', '-c', `exec ${command}`);
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', program, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#programs.add(child.pid);
    const state = { output: '', stop: () => child.kill() };
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (data) => {
        state.output += data;
      });
    const timer = setTimeout(() => child.kill('SIGKILL'), timeout);
    state.done = once(child, 'close').then(([code]) => {
      clearTimeout(timer);
      this.#programs.delete(child.pid);
      return { code: code ?? -1, output: state.output };
    });
    return state;
  }

  async exec(command, timeout) {
    const shell = this.#guest ? command : `sh -c '${command}'`;
    return await this.spawn(shell, timeout).done;
  }

  /** Bytes and packets of both directions so far, at the end of the cable. */
  async traffic() {
    const [{ stats64: stats }] = JSON.parse(this.#run('ip', '-json', '-stats', 'link', 'show', LINK));
    return { bytes: stats.rx.bytes + stats.tx.bytes, packets: stats.rx.packets + stats.tx.packets };
  }

  /** Processor time of the guest with its programs, or of the programs that run, in s. */
  async processorTime() {
    return timeOf(this.#guest ? [this.#guest.qemu.pid] : this.#programs);
  }

  stop() {
    this.#guest?.qemu.kill('SIGKILL');
    // A device of `roce run` waits for programs.
    for (const pid of this.#programs) process.kill(pid, 'SIGKILL');
    this.#holder?.kill('SIGKILL');
  }
}

/** Starts both sides, in the network namespace of this process, which nothing else uses. */
export async function startUm(release, kernel, directory, mtu) {
  const given = { release, kernel, image: buildGuest(release), directory, mtu };
  const sides = [1, 2].map((number) => new Side(number, given));
  const [a, b] = sides;
  [a.peer, b.peer] = [b, a];
  for (const side of sides) await side.open();
  addCable(mtu, a.end, b.end);
  await a.become(true);
  const name = (await a.exec('uname -r')).output.trim();
  return {
    sides,
    where: `rxe: Linux ${name} under User-Mode Linux, 1 processor each; node-roce: programs of this machine`,
  };
}
