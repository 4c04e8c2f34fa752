/** The link that a device's options ask for. Plain data, so that another thread can open it too. */
import {
  FaultLink,
  type FaultOptions,
  type Link,
  openSocketLink,
  type SocketLinkKind,
  type SocketLinkOptions,
  TracerLink,
  traceError,
} from '@node-roce/link';

/** The sockets that carry the packets, and faults that are applied to them. */
export interface LinkOptions extends Omit<SocketLinkOptions, 'limitations'> {
  /**
   * `udp`: the native addon's sockets. `dgram`: Node's own, between node-roce programs only, where there is no
   * addon. Default `auto`: `udp` if the addon loads, else `dgram`, with a process warning (ROCE_DGRAM_LINK).
   * `xdp`: AF_XDP, past the kernel's UDP stack, with CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF; `udp` where it is not
   * possible, and `limitations` have the reason.
   */
  link?: SocketLinkKind;
  /** Spoils packets on purpose: loss, duplicates, corruption, reordering, delay; seeded. */
  faults?: FaultOptions;
  /** Writes every packet, as this side sees it, into this pcapng file. */
  trace?: string;
}

async function openTracer(link: Link, path: string): Promise<Link> {
  try {
    return await TracerLink.open(link, path);
  } catch (cause) {
    throw traceError(path, cause);
  }
}

/** Opens sockets, unless a link is given, and puts the wrappers around it. */
export async function openLink(options: LinkOptions, given?: Link): Promise<Link> {
  const { faults, trace, link: kind = 'auto', ...sockets } = options;
  let link = given ?? (await openSocketLink(kind, sockets));
  try {
    // The tracer is outermost: it shows what the adapter sees.
    if (faults) link = new FaultLink(link, faults);
    if (trace !== undefined) link = await openTracer(link, trace);
    return link;
  } catch (error) {
    await link.close();
    throw error;
  }
}
