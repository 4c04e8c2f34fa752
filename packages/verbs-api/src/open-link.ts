/** The link that a device's options ask for. */
import { type Link, TracerLink, UdpLink, type UdpLinkOptions } from '@node-roce/link';

export async function openLink(options: UdpLinkOptions, trace?: string): Promise<Link> {
  const link = new UdpLink(options);
  if (trace === undefined) return link;
  try {
    return await TracerLink.open(link, trace);
  } catch (error) {
    await link.close();
    throw error;
  }
}
