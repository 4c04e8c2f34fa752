/** Checks of `link: 'xdp'`: by what is known without touching an interface, or by opening it. */
import { release } from 'node:os';
import { missingCapabilities } from '@node-roce/link';
import { openDevice } from '@node-roce/verbs-api';
import { type Check, ok, warn } from './check.ts';

/** First releases of Linux with the features of the xdp link: `bpf_link`, and frames of several buffers. */
const XDP_LINUX = [5, 9] as const;
const XDP_LARGE_FRAMES_LINUX = [6, 6] as const;

/** Whether `link: 'xdp'` is possible, as far as can be known without touching an interface. It is an option: no is no warning. */
export function checkXdp(): Check {
  const [major, minor] = release().split('.').map(Number);
  const since = ([first, second]: readonly [number, number]) =>
    major > first || (major === first && minor >= second);
  if (process.platform !== 'linux' || !since(XDP_LINUX))
    return ok('xdp', `link: 'xdp' needs Linux ${XDP_LINUX.join('.')}; it would open the udp link`);
  const missing = missingCapabilities();
  if (missing.length > 0)
    return ok(
      'xdp',
      `link: 'xdp' needs ${missing.join(', ')}, which this process lacks; it would open the udp link`,
    );
  const mtu = since(XDP_LARGE_FRAMES_LINUX)
    ? 'path MTU up to 4096'
    : `path MTU up to 2048 (4096 from Linux ${XDP_LARGE_FRAMES_LINUX.join('.')})`;
  return ok(
    'xdp',
    `this process may open link: 'xdp', ${mtu}; roce doctor --xdp shows which mode an interface supports`,
  );
}

/** Opens the link as a program would, and reports its mode, or the reason of each mode. */
export async function tryXdp(address: string): Promise<Check> {
  try {
    await using device = await openDevice({ address, link: 'xdp', xdpMode: 'any' });
    return ok('xdp', device.query().limitations.join(' '));
  } catch (error) {
    return warn('xdp', (error as Error).message);
  }
}
