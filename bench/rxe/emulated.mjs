// The sides of the bench under QEMU: two guests whose cards are connected to each other, and in which all programs run.
import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { Guest } from '../../test/capture/real/guest.mjs';
import { buildImage, LIBRARY, NODE_SIDE } from './image.mjs';

const LOAD = `modprobe rdma_rxe && { rdma link show rxe0/1 > /dev/null 2>&1 || rdma link add rxe0 type rxe netdev eth0; }`;
const UNLOAD = `rdma link delete rxe0 2> /dev/null; ! grep -q ^rdma_rxe /proc/modules || rmmod rdma_rxe`;
const NET = '/sys/class/net/eth0/statistics';

class Side {
  node = NODE_SIDE;
  library = LIBRARY;
  socket = '/run/roce/device.sock';

  constructor(guest) {
    this.guest = guest;
    this.ip4 = guest.ip4;
  }

  spawn(command, timeout) {
    return this.guest.spawn(command, timeout);
  }

  exec(command, timeout) {
    return this.guest.exec(command, timeout);
  }

  async become(isRxe, limit) {
    await this.guest.must(isRxe ? LOAD : UNLOAD, limit);
  }

  /** Bytes and packets of both directions so far. */
  async traffic() {
    const read = `echo $(cat ${NET}/rx_bytes ${NET}/tx_bytes ${NET}/rx_packets ${NET}/tx_packets)`;
    const [a, b, c, d] = (await this.guest.must(read)).trim().split(' ').map(Number);
    return { bytes: a + b, packets: c + d };
  }

  /** Time that the guest's processors were not idle, in s. */
  async processorTime() {
    // cpu user nice system idle iowait irq softirq; 100 jiffies a second.
    const fields = (await this.guest.must('head -n 1 /proc/stat')).split(/\s+/).map(Number);
    return [1, 2, 3, 6, 7].reduce((sum, i) => sum + fields[i], 0) / 100;
  }

  stop() {
    this.guest.stop();
  }
}

/** Starts both sides. */
export async function startEmulated(release, directory, mtu) {
  const image = buildImage(release, directory);
  // The card of each guest sends to the socket at which the other's receives.
  symlinkSync(join(directory, 'guest-b'), join(directory, 'link-a'));
  symlinkSync(join(directory, 'guest-a'), join(directory, 'link-b'));
  const sides = [];
  for (const side of ['a', 'b'])
    sides.push(new Side(await Guest.start({ side, release, image, directory, mtu, prepare: 'true' })));
  const [a, b] = sides;
  await a.guest.must(`ping -c 2 ${b.ip4}`);
  const kernel = (await a.guest.must('uname -r')).trim();
  return { sides, where: `guests: Linux ${kernel}, 2 processors each, emulated` };
}
