/**
 * Opening a link on the machine's interfaces: AF_XDP where it is asked for, UDP by the native addon where that loads, else Node's own.
 * Everything is imported at its first use: each `roce` command reads the list for its help, and few of them open a link.
 */
import type { DgramLink } from './dgram.ts';
import type { Link } from './link.ts';
import type { UdpLink, UdpLinkOptions } from './udp.ts';
import type { XdpMode } from './xdp-support.ts';

/** One kind of link on the machine's interfaces. */
interface LinkRow {
  /** As a help text puts it. */
  readonly text: string;
  /** Two devices of one program can have one interface. */
  readonly isShared: boolean;
  open(options: UdpLinkOptions, xdpMode: SocketLinkOptions['xdpMode']): Promise<Link>;
}

/**
 * The one list of links on the machine's interfaces, in the order in which texts name them: `udp` needs the native addon and talks to every RoCE
 * adapter; `dgram` needs nothing and talks to node-roce programs only; `xdp` bypasses the kernel's UDP stack (docs/xdp.md); where that is not
 * possible it is `udp`, and `limitations` have the reason.
 */
export const LINKS = {
  udp: { text: 'native addon', isShared: true, open: openUdpLink },
  dgram: {
    text: 'node:dgram, reaches node-roce peers only',
    isShared: true,
    open: openDgramLink,
  },
  xdp: {
    text: 'AF_XDP: past the kernel’s UDP stack, with CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF',
    isShared: false,
    open: openXdpLink,
  },
} as const satisfies Record<string, LinkRow>;

/** A link of the list, or `auto`: `udp`, or, with a process warning, `dgram` where the addon can't be loaded. */
export type SocketLinkKind = 'auto' | keyof typeof LINKS;
/** The values of an option that chooses a link. */
export const LINK_KINDS = ['auto', ...Object.keys(LINKS)] as readonly SocketLinkKind[];

/** Options of links on the machine's interfaces. */
export interface SocketLinkOptions extends UdpLinkOptions {
  /**
   * Of `xdp`: the mode to open in. `auto` is the first of zero-copy, native and generic that the interface takes, else UDP;
   * `any` is the same without UDP. One that is named is opened or is an error. Default `auto`.
   */
  xdpMode?: 'auto' | 'any' | XdpMode;
}

/**
 * Rejects with RoceError: EADDRINUSE, EADDRNOTAVAIL, ENOENT, EINVAL (an unknown kind; what `dgram` can't do);
 * `udp` with ERR_ROCE_NO_ADDON where the addon is missing, with ERR_ROCE_ADDON_LOAD where the system does not load it.
 */
export async function openSocketLink(
  kind: SocketLinkKind,
  { xdpMode, ...options }: SocketLinkOptions,
): Promise<Link> {
  if (kind !== 'auto') {
    if (!Object.hasOwn(LINKS, kind))
      throw await invalid('link', `${kind}`, `${LINK_KINDS.slice(0, -1).join(', ')} or ${LINK_KINDS.at(-1)}`);
    return LINKS[kind].open(options, xdpMode);
  }
  try {
    return await openUdpLink(options);
  } catch (error) {
    if (!WITHOUT_ADDON.has((error as NodeJS.ErrnoException).code)) throw error;
    const link = await openDgramLink(options);
    warn((error as Error).message);
    return link;
  }
}

/** Rejects with RoceError as `UdpLink` throws, or with ERR_ROCE_NO_ADDON where the addon is missing. */
export async function openUdpLink(options: UdpLinkOptions): Promise<UdpLink> {
  // The addon is loaded only by programs that need it.
  const { UdpLink } = await import('./udp.ts');
  return UdpLink.open(options);
}

/** Rejects as `openUdpLink` does, and with ERR_ROCE_NO_XDP where no mode is possible that `mode` allows. */
async function openXdpLink(options: UdpLinkOptions, mode: 'auto' | 'any' | XdpMode = 'auto'): Promise<Link> {
  if (options.shared)
    throw await invalid('shared', 'true', 'link: udp; the xdp link has its queue pairs alone');
  const { XdpLink } = await import('./xdp.ts');
  const { XDP_MODES } = await import('./xdp-support.ts');
  try {
    return XdpLink.open(options, mode === 'auto' || mode === 'any' ? XDP_MODES : [mode]);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== 'ERR_ROCE_NO_XDP' || mode !== 'auto') throw error;
    return openUdpLink({ ...options, limitations: [`The udp link is used instead of xdp. ${message}.`] });
  }
}

/** Codes of an addon that is missing, or that this system does not load. One that is stale is an error. */
const WITHOUT_ADDON = new Set<string | undefined>(['ERR_ROCE_NO_ADDON', 'ERR_ROCE_ADDON_LOAD']);

let warned = false;

/** Warns once: the reason is the same for each device. */
function warn(why: string): void {
  if (warned) return;
  warned = true;
  process.emitWarning(`${why} The dgram link is used instead, which reaches node-roce programs only.`, {
    type: 'RoceWarning',
    code: 'ROCE_DGRAM_LINK',
  });
}

async function openDgramLink({
  zeroChecksum,
  offload: _,
  flushIcrc: __,
  limitations: ___,
  runs: ____,
  ...options
}: UdpLinkOptions): Promise<DgramLink> {
  if (options.shared) {
    throw await invalid('shared', 'true', 'link: udp; the dgram link has its addresses alone');
  }
  if (zeroChecksum) {
    throw await invalid('zeroChecksum', 'true', 'false: the dgram link can’t switch the UDP checksum off');
  }
  const { DgramLink } = await import('./dgram.ts');
  return DgramLink.open(options);
}

async function invalid(attribute: string, value: string, expected: string): Promise<Error> {
  const { invalid } = await import('@node-roce/transport');
  return invalid(attribute, value, expected);
}
