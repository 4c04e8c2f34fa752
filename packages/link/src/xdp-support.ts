/** Checks the requirements of AF_XDP on this machine, and describes missing ones. */
import { readdirSync } from 'node:fs';
import { RoceError } from '@node-roce/transport';
import { explainDescriptors } from './descriptors.ts';
import { capabilities } from './kernel-files.ts';

/** How frames come in: `zero-copy` and `native` in the driver, `generic` behind it. */
export type XdpMode = 'zero-copy' | 'native' | 'generic';

export const XDP_MODES: readonly XdpMode[] = ['zero-copy', 'native', 'generic'];

/** capabilities(7); CAP_SYS_ADMIN stands for the two that bpf(2) asks for. */
const NEEDED = { CAP_NET_RAW: 13, CAP_NET_ADMIN: 12, CAP_BPF: 39 } as const;
const CAP_SYS_ADMIN = 21;

/** Capabilities that AF_XDP needs and this process lacks. */
export function missingCapabilities(): string[] {
  const has = capabilities();
  return Object.entries(NEEDED)
    .filter(([name, bit]) => !has(bit) && !(name !== 'CAP_NET_RAW' && has(CAP_SYS_ADMIN)))
    .map(([name]) => name);
}

/** The receive queues of an interface as /sys shows them, for drivers that have no channels: the addon asks those that have. */
export function queuesOf(name: string): number {
  try {
    const queues = readdirSync(`/sys/class/net/${name}/queues`).filter((queue) => queue.startsWith('rx-'));
    return Math.max(1, queues.length);
  } catch {
    return 1; // Of another network namespace than /sys.
  }
}

/** ENOBUFS: the memory is more than RLIMIT_MEMLOCK, without CAP_IPC_LOCK. */
export function isTooMuchMemory(error: unknown): boolean {
  const { code, syscall } = error as NodeJS.ErrnoException;
  return (code === 'ENOBUFS' || code === 'ENOMEM') && syscall === 'setsockopt(XDP_UMEM_REG)';
}

/** A clause on why a mode can't be used. Rethrows what is not about AF_XDP. */
export function whyNot(cause: unknown, mode: XdpMode): string {
  const error = explainDescriptors(cause);
  if (error instanceof RoceError) throw error;
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (syscall === undefined || !REASONED.has(syscall)) throw error;
  if (code === 'EPERM' || code === 'EACCES') {
    const missing = missingCapabilities();
    const needs = missing.length > 0 ? missing.join(', ') : 'a kernel that does not lock bpf() down';
    return `${mode}: ${syscall} needs ${needs}`;
  }
  const text = TEXTS[`${syscall} ${code}`] ?? `${syscall} fails with ${code}`;
  return `${mode}: ${text}`;
}

const REASONED = new Set([
  'bpf(BPF_MAP_CREATE)',
  'bpf(BPF_PROG_LOAD)',
  'bpf(BPF_LINK_CREATE)',
  'bpf(BPF_MAP_UPDATE_ELEM)',
  'socket(AF_XDP)',
  'setsockopt(XDP_UMEM_REG)',
  'setsockopt(XDP_RX_RING)',
  'getsockopt(XDP_MMAP_OFFSETS)',
  'mmap(AF_XDP)',
  'bind(AF_XDP)',
  'ioctl',
]);

const TEXTS: Record<string, string> = {
  'bpf(BPF_MAP_CREATE) ENOSYS': 'this kernel has no bpf()',
  'socket(AF_XDP) EAFNOSUPPORT': 'this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)',
  'bpf(BPF_LINK_CREATE) EBUSY': 'another XDP program is on the interface',
  'bpf(BPF_LINK_CREATE) EEXIST': 'another XDP program is on the interface, in another mode',
  'bpf(BPF_LINK_CREATE) ENOTSUP': 'the driver takes no XDP program',
  'bpf(BPF_LINK_CREATE) EINVAL': 'the driver takes no XDP program, or the kernel no bpf_link (Linux 5.9)',
  'bpf(BPF_LINK_CREATE) ERANGE': 'the driver takes no XDP program at this MTU',
  'bind(AF_XDP) ENOTSUP': 'the driver has no zero-copy',
  'bind(AF_XDP) EINVAL': 'the driver takes no AF_XDP socket',
  'bind(AF_XDP) EBUSY': 'another AF_XDP socket has the queue',
  'setsockopt(XDP_UMEM_REG) ENOBUFS': 'RLIMIT_MEMLOCK is too low, and CAP_IPC_LOCK is missing',
  'ioctl EPROTONOSUPPORT': 'the interface is not Ethernet',
};

/** The error of an interface on which no mode works. */
export function noXdp(name: string, reasons: readonly string[]): RoceError {
  const missing = missingCapabilities();
  return new RoceError('ERR_ROCE_NO_XDP', `link: no AF_XDP on ${name}: ${reasons.join('; ')}`, {
    errno: missing.length > 0 ? 'EPERM' : 'EOPNOTSUPP',
    attribute: 'link',
    expected:
      missing.length > 0
        ? `a process with ${missing.join(', ')} (setcap, or root)`
        : 'Linux 5.9 with AF_XDP, and an interface without another XDP program',
  });
}
