/** Programs of another Debian release on this machine: its userland in a chroot, with the library that was built here. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DeviceServer, libraryPath } from '@node-roce/device';
import { type Ended, listening, type Running } from './programs.ts';

/** Where the library and the sockets are in the chroot. */
const INSIDE = '/roce';

/** A userland, and devices that its programs reach. Needs root. */
export class Userland {
  readonly root: string;
  readonly devices: DeviceServer[] = [];
  #port: number;

  /** @param port of the first pair; each has one more */
  private constructor(root: string, port: number) {
    this.root = root;
    this.#port = port;
  }

  static async open(root: string, port: number, ...addresses: string[]): Promise<Userland> {
    const userland = new Userland(root, port);
    const folder = join(root, INSIDE);
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { mode: 0o700 });
    for (const name of ['libibverbs.so.1', 'libroce-paths.so'])
      copyFileSync(join(dirname(libraryPath()), name), join(folder, name));
    for (const address of addresses)
      userland.devices.push(await DeviceServer.listen({ address, path: join(folder, `${address}.sock`) }));
    return userland;
  }

  /** Starts a line of the shell in the chroot, at a device. It is killed after `timeout` ms. */
  start(device: number, line: string, timeout = 240_000): Running {
    const socket = this.devices[device].path.slice(this.root.length);
    const env = `LD_LIBRARY_PATH=${INSIDE} LD_PRELOAD=${INSIDE}/libroce-paths.so ROCE_SOCKET=${socket}`;
    // In mounts of its own: the library looks at /proc/self/maps, UCX at /sys/class/net.
    const proc = `--mount-proc=${join(this.root, 'proc')}`;
    const enter = 'mount --rbind /sys "$0/sys" && exec chroot "$0" /bin/sh -c "$1"';
    const inside = ['sh', '-c', enter, this.root, `export ${env}; exec ${line}`];
    const child = spawn('unshare', [proc, ...inside], { stdio: ['ignore', 'pipe', 'pipe'], timeout });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (data) => {
        output += data;
      });
    const ended = once(child, 'close').then(([code, signal]) => ({ code, signal, output }) as Ended);
    return { child, ended };
  }

  /** Plays a program with itself: the server at the first device, the client at the second. */
  async pair(line: string): Promise<[server: Ended, client: Ended]> {
    const port = ++this.#port;
    const all = `${line} -p ${port}`;
    const server = this.start(0, all);
    await Promise.race([listening(port), server.ended]);
    return Promise.all([server.ended, this.start(1, `${all} 127.0.0.1`).ended]);
  }

  async close(): Promise<void> {
    for (const device of this.devices) await device.close();
    rmSync(join(this.root, INSIDE), { recursive: true, force: true });
  }
}
