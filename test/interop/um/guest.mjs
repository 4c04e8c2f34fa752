// A guest under User-Mode Linux: Linux as a program, with the same image as under QEMU. Neither emulation nor KVM nor modules of the host.
import { readFileSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Port of the exec daemon, at the guest's control address. */
export const EXEC_PORT = 2000;

const LAUNCH = fileURLToPath(new URL('launch.py', import.meta.url));
/** MiB of a guest. */
const MEMORY = 768;
/** statfs(2) */
const TMPFS = 0x0102_1994;

/** MHz of this machine's first processor: User-Mode Linux does not know it, and perftest divides by it. */
const megahertz = () =>
  /^cpu MHz\s*: ([\d.]+)/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? '2600.000';

/** A directory for the file that is the guest's memory: in memory, unless that is as small as some containers have it. */
function directoryOfMemory() {
  const { type, bavail, bsize } = statfsSync('/dev/shm');
  return type === TMPFS && bavail * bsize > MEMORY * 2 ** 20 ? '/dev/shm' : tmpdir();
}

/**
 * The command that runs a guest. Its console is standard output; it runs until it is killed.
 *
 * All of it is in a PID namespace, whose process 1 ends with the guest's kernel and with this process: the host then ends the guest's programs
 * too. Otherwise they would go on as the host's, with the rights of root: Linux 6.1 does not ask that they end with their tracer.
 *
 * @param {object} guest
 * @param {string} guest.kernel file of the kernel (kernel.mjs)
 * @param {string} guest.image directory of the image (../image.mjs)
 * @param {string} guest.name of letters and digits
 * @param {string} guest.directory where the kernel may keep its own files
 * @param {{ device: string, mtu: number, mac: string }[]} guest.cards eth0 (RDMA), eth1 (commands), and the devices here at which they are
 * @param {string[]} guest.words of the kernel's command line, for guest/init
 */
export function umCommand({ kernel, image, name, directory, cards, words }) {
  const console_ = ['con=null', 'con0=null,fd:1', 'ssl=null', 'quiet', 'panic=-1'];
  return {
    command: 'unshare',
    args: [
      ...['--pid', '--fork', '--kill-child', 'python3', '-IS', LAUNCH, kernel],
      ...cards.map(({ device, mtu, mac }) => `${device},${mtu},${mac}`),
      '--',
      ...[`mem=${MEMORY}M`, `initrd=${join(image, 'initramfs.cpio')}`, ...console_],
      ...[`umid=${name}`, `uml_dir=${directory}/`, `guest.mhz=${megahertz()}`, ...words],
    ],
    env: { ...process.env, TMPDIR: directoryOfMemory() },
  };
}

/** Whether a guest ended because this machine does not let a program trace another one, as its console shows. */
export const isTracingRefused = (text) => /ptrace/i.test(text) && !text.includes('Linux version');
