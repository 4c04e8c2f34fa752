/**
 * Places on loopback that no other process of this machine has: they follow from the process. So files of tests run next to each other,
 * to another run of the tests, and to programs at 127.0.0.1.
 */
import { networkInterfaces } from 'node:os';

/** An IPv4 address, `n` of 1 … 254. Those of another process differ. */
export const host = (n: number): string =>
  `127.${64 | ((process.pid >> 8) & 0x3f)}.${process.pid & 0xff}.${n}`;

/** A UDP port for sockets at an address that others have too; the three after it are free as well. Linux gives them to nobody by itself. */
export const ownPort = 20_000 + (process.pid % 3000) * 4;

/** Whether loopback has an address of IPv6. */
export const hasIpv6 = Object.values(networkInterfaces()).some((all) =>
  all?.some(({ address }) => address === '::1'),
);
