/** The link of our devices, chosen by ROCE_INTEROP_LINK (docs/testing.md): udp unless given, or xdp. */
import type { OpenOptions } from '@node-roce/verbs-api';

const wanted = process.env.ROCE_INTEROP_LINK || 'udp';
if (wanted !== 'udp' && wanted !== 'xdp') throw new Error(`ROCE_INTEROP_LINK: udp or xdp, not ${wanted}`);

/** Options of openDevice: AF_XDP or an error. */
export const LINK: Pick<OpenOptions, 'link' | 'xdpMode'> =
  wanted === 'xdp' ? { link: 'xdp', xdpMode: 'any' } : {};

/** The same for a command. */
export const LINK_ARGUMENTS: readonly string[] = wanted === 'xdp' ? ['--link', 'xdp'] : [];
