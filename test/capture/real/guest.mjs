// Guests under QEMU for the recorder: image, network sockets, commands. The exec daemon's protocol is that of test/interop/guest/execd.c.
import { spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, renameSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { PATIENCE } from '../../tiers/patience.mjs';

const BOOT_TIMEOUT = 420_000;

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Where the state of a guest that has booted is kept. */
const stateOf = (image, side, mtu) =>
  join(dirname(image), '../capture-real', `${basename(image)}-${side}-${mtu}.state`);

/** A command of QEMU's monitor; resolves to its answer, '' while QEMU does not answer. */
async function ask(path, command) {
  return await new Promise((resolve) => {
    const socket = connect(path);
    let text = '';
    let isAsked = false;
    const finish = () => {
      socket.destroy();
      resolve(text);
    };
    socket.on('data', (data) => {
      text += data;
      const prompts = text.split('(qemu)').length - 1;
      if (prompts === 1 && !isAsked) {
        isAsked = true;
        socket.write(`${command}\n`);
      }
      if (prompts >= 2) finish();
    });
    socket.on('error', finish);
    socket.on('close', finish);
    setTimeout(finish, 60_000).unref();
  });
}

/** Stops a guest and saves it. */
async function save(monitor, path) {
  mkdirSync(dirname(path), { recursive: true });
  await ask(monitor, `migrate "exec:cat > ${path}.new"`);
  while (!/Migration status: (completed|failed)/.test(await ask(monitor, 'info migrate'))) await sleep(200);
  renameSync(`${path}.new`, path);
}

/** A running guest. `side` is a or b: its addresses are 10.78.0.1 and fd78::1, or those that end in 2. */
export class Guest {
  /** `host` and `port` are those of its exec daemon. */
  constructor(side, release, port, qemu, host = '127.0.0.1') {
    this.side = side;
    this.release = release;
    this.host = host;
    this.port = port;
    this.qemu = qemu;
    this.ip4 = `10.78.0.${side === 'a' ? 1 : 2}`;
    this.ip6 = `fd78::${side === 'a' ? 1 : 2}`;
  }

  /**
   * Starts a guest whose card sends to the socket `${directory}/link-SIDE` and receives at `${directory}/guest-SIDE`. It goes on from the
   * state that an earlier start saved; without one it boots, runs `prepare`, and saves it.
   */
  static async start({ side, release, image, directory, mtu, prepare }) {
    const number = side === 'a' ? 1 : 2;
    const port = await freePort();
    const log = join(directory, `console-${side}`);
    const monitor = join(directory, `monitor-${side}`);
    const saved = stateOf(image, side, mtu);
    const isSaved = existsSync(saved);
    const off = ['csum', 'gso', 'guest_csum', 'guest_tso4', 'guest_tso6', 'guest_ecn', 'guest_ufo']
      .concat(['host_tso4', 'host_tso6', 'host_ecn', 'host_ufo'])
      .map((feature) => `${feature}=off`)
      .join(',');
    const accel = process.env.ROCE_GUEST_ACCEL ?? 'tcg';
    const args = [
      ['-machine', `q35,accel=${accel}`, '-cpu', accel === 'kvm' ? 'host' : 'max', '-smp', '2', '-m', '768'],
      ['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
      ['-kernel', join(image, 'vmlinuz'), '-initrd', join(image, 'initramfs.cpio'), '-append'],
      [
        'console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=nowatchdog no_timer_check ' +
          `guest.ip4=10.78.0.${number}/24 guest.ip6=fd78::${number}/64 guest.mtu=${mtu}`,
      ],
      ['-serial', `file:${log}`],
      [
        '-netdev',
        `dgram,id=rdma,local.type=unix,local.path=${directory}/guest-${side},` +
          `remote.type=unix,remote.path=${directory}/link-${side}`,
      ],
      ['-device', `virtio-net-pci,netdev=rdma,mac=52:54:00:78:00:0${number},romfile=,host_mtu=${mtu},${off}`],
      ['-netdev', `user,id=control,restrict=on,hostfwd=tcp:127.0.0.1:${port}-10.0.2.15:2000`],
      ['-device', `virtio-net-pci,netdev=control,mac=52:54:00:79:00:0${number},romfile=`],
      ['-device', 'virtio-rng-pci'],
      ['-monitor', `unix:${monitor},server,nowait`],
      isSaved ? ['-incoming', `exec:cat ${saved}`] : [],
    ].flat();
    const messages = openSync(join(directory, `qemu-${side}.log`), 'w');
    const qemu = spawn('setpriv', ['--pdeathsig', 'KILL', 'qemu-system-x86_64', ...args], {
      stdio: ['ignore', messages, messages],
    });
    closeSync(messages);
    const guest = new Guest(side, release, port, qemu);
    const end = Date.now() + BOOT_TIMEOUT;
    while ((await guest.exec('rdma link show rxe0/1', 15_000)).code !== 0) {
      if (qemu.exitCode !== null) throw new Error(`QEMU ended with ${qemu.exitCode}; see ${directory}`);
      if (Date.now() > end) {
        await save(monitor, saved);
        throw new Error(
          `guest ${side} is not ready after ${BOOT_TIMEOUT / 1000} s; the next call goes on from here`,
        );
      }
      await sleep(500);
    }
    if ((await guest.exec('test -e /run/prepared')).code !== 0) {
      await guest.checkClock();
      await guest.must(`${prepare}\n: > /run/prepared`);
      await save(monitor, saved);
      await ask(monitor, 'cont');
    }
    return guest;
  }

  /** Throws if the guest's clock does not run as fast as ours: a kernel that boots on a busy machine calibrates it wrongly. */
  async checkClock() {
    const uptime = async () => Number((await this.must('cat /proc/uptime')).split(' ')[0]) * 1000;
    const [guest, here] = [await uptime(), performance.now()];
    await sleep(3000);
    const rate = ((await uptime()) - guest) / (performance.now() - here);
    if (Math.abs(rate - 1) > 0.05)
      throw new Error(`guest ${this.side}: its clock runs at ${rate.toFixed(2)} of ours: boot again`);
  }

  stop() {
    this.qemu.kill();
  }

  /** Starts a command. `done` resolves to { code, output }; `stop` kills the command. */
  spawn(command, timeout = 60_000 * PATIENCE) {
    const socket = connect({ host: this.host, port: this.port });
    const send = (type, body) => {
      const header = Buffer.alloc(5);
      header.write(type, 0, 'latin1');
      header.writeUInt32BE(body.length, 1);
      socket.write(Buffer.concat([header, body]));
    };
    send('c', Buffer.from(command));
    const state = { output: '' };
    state.done = new Promise((resolve) => {
      let buffered = Buffer.alloc(0);
      const timer = setTimeout(() => socket.destroy(), timeout);
      const finish = (code) => {
        clearTimeout(timer);
        socket.destroy();
        resolve({ code, output: state.output });
      };
      socket.on('data', (data) => {
        buffered = Buffer.concat([buffered, data]);
        while (buffered.length >= 5 && buffered.length >= 5 + buffered.readUInt32BE(1)) {
          const length = buffered.readUInt32BE(1);
          const type = String.fromCharCode(buffered[0]);
          const body = buffered.subarray(5, 5 + length);
          buffered = buffered.subarray(5 + length);
          if (type === 'x') return finish(body.readUInt32BE(0));
          state.output += body.toString();
        }
      });
      socket.on('error', () => {});
      socket.on('close', () => finish(-1));
    });
    state.write = (text) => send('i', Buffer.from(text));
    state.stop = () => socket.destroy();
    return state;
  }

  /** Runs a command to its end; { code, output }, code −1 if it took longer than `timeout` ms. */
  async exec(command, timeout) {
    return await this.spawn(command, timeout).done;
  }

  async must(command, timeout) {
    const { code, output } = await this.exec(command, timeout);
    if (code !== 0) throw new Error(`guest ${this.side}: ${command}: ${code}\n${output}`);
    return output;
  }
}
