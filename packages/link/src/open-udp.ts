/** Opening the UDP link: the addon is loaded only by who needs it. */
import type { UdpLink, UdpLinkOptions } from './udp.ts';

/** Rejects with RoceError as `UdpLink` throws, or with ERR_ROCE_NO_ADDON where the addon is missing. */
export async function openUdpLink(options: UdpLinkOptions): Promise<UdpLink> {
  const { UdpLink } = await import('./udp.ts');
  return new UdpLink(options);
}
