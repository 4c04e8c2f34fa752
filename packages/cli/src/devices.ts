/** Interfaces as devices: their GID tables, in the order that `roce devinfo` prints and `-g` counts. */
import type { InterfaceAddress, NetworkInterface } from '@node-roce/link';
import { gidFromText, gidToText } from '@node-roce/wire';

export interface Gid {
  index: number;
  gid: string;
  address: string;
  type: 'RoCE v2';
}

// As in the GID table of a Linux device: the link-local address first.
const rank = ({ linkLocal, family }: InterfaceAddress) => (linkLocal ? 0 : family === 4 ? 1 : 2);

export const gidsOf = ({ addresses }: NetworkInterface): Gid[] =>
  [...addresses]
    .sort((a, b) => rank(a) - rank(b))
    .map(({ address }, index) => ({ index, gid: gidToText(gidFromText(address)), address, type: 'RoCE v2' }));
