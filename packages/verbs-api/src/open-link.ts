/** The link that a device's options ask for. Plain data, so that another thread can open it too. */
import {
  FaultLink,
  type FaultOptions,
  type Link,
  openUdpLink,
  TracerLink,
  type UdpLinkOptions,
} from '@node-roce/link';

export interface LinkOptions extends UdpLinkOptions {
  /** Spoils packets on purpose: loss, duplicates, corruption, reordering, delay; seeded. */
  faults?: FaultOptions;
  /** Writes every packet, as this side sees it, into this pcapng file. */
  trace?: string;
}

/** Opens UDP sockets, unless a link is given, and puts the wrappers around it. */
export async function openLink(options: LinkOptions, given?: Link): Promise<Link> {
  const { faults, trace, ...udp } = options;
  let link = given ?? (await openUdpLink(udp));
  try {
    // The tracer is outermost: it shows what the adapter sees.
    if (faults) link = new FaultLink(link, faults);
    if (trace !== undefined) link = await TracerLink.open(link, trace);
    return link;
  } catch (error) {
    await link.close();
    throw error;
  }
}
