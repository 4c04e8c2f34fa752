/** Finds the process that holds UDP port 4791, for an error message that helps. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { readText } from './kernel-files.ts';

/** A sentence on who has the port at that family, as far as this process may look. */
export function describePortOwner(port: number, family: 4 | 6): string {
  const inodes = socketInodes(port, family);
  const rdma = rdmaDevices();
  const owner = inodes.map(processWithSocket).find((p) => p !== undefined);
  if (owner?.pid === process.pid)
    return 'this process has it: close that device, share it (device.openContext, or shared: true in both), or use another address';
  if (owner)
    return `process ${owner.pid} (${owner.name}) has it: end that, open the address with shared: true in both, or use another one`;
  if (rdma.length > 0) {
    return (
      `the RDMA device ${rdma.join(', ')} of this network namespace probably has it: ` +
      'remove an rxe with `rdma link delete NAME`; on mlx5 clear the devlink parameter enable_roce and reload'
    );
  }
  if (inodes.length > 0) return 'a process of another user has it (run as root to see which)';
  return 'the kernel has it, or a process that this one cannot see';
}

function socketInodes(port: number, family: 4 | 6): string[] {
  const wanted = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  // An IPv6 wildcard socket may hold the port for IPv4 as well.
  const tables = family === 4 ? ['/proc/net/udp', '/proc/net/udp6'] : ['/proc/net/udp6'];
  return tables.flatMap((table) =>
    readText(table)
      .split('\n')
      .slice(1)
      .map((line) => line.trim().split(/\s+/))
      .filter((fields) => fields[1]?.endsWith(wanted))
      .map((fields) => fields[9]),
  );
}

function processWithSocket(inode: string): { pid: number; name: string } | undefined {
  if (inode === '0') return undefined; // A kernel socket, as rxe's.
  for (const pid of list('/proc').filter((name) => /^\d+$/.test(name))) {
    for (const fd of list(`/proc/${pid}/fd`)) {
      try {
        if (readlinkSync(`/proc/${pid}/fd/${fd}`) !== `socket:[${inode}]`) continue;
        return { pid: Number(pid), name: readFileSync(`/proc/${pid}/comm`, 'utf8').trim() };
      } catch {
        // Gone meanwhile, or not ours to look at.
      }
    }
  }
  return undefined;
}

function rdmaDevices(): string[] {
  return list('/sys/class/infiniband');
}

function list(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
