/** Chooses the local address of a command: by `--bind`, by `-d` and a GID index as programs of libibverbs have them, or by route. */
import { isIPv4 } from 'node:net';
import { type InterfaceAddress, interfaceByAddress, interfaceByName } from '@node-roce/link';
import { RoceError } from '@node-roce/verbs-api';
import { isLinkLocal, parseIpAddress } from '@node-roce/wire';
import { gidsOf } from '../devices.ts';
import { UsageError } from '../options.ts';

export interface DeviceChoice {
  bind?: string;
  /** Name of an interface. */
  ibDev?: string;
  /** Index in its GID table. */
  gidIdx?: number;
  /** The option of that index: `-g` of pingpong unless given. */
  gidFlag?: '-g' | '-x';
}

export function checkChoice({ bind, ibDev, gidIdx, gidFlag = '-g' }: DeviceChoice): void {
  if (bind === undefined) return;
  if (ibDev !== undefined || gidIdx !== undefined)
    throw new UsageError(`--bind names the address; -d and ${gidFlag} would choose another one`);
  if (parseIpAddress(bind.split('%')[0]) === undefined)
    throw new UsageError(`--bind ${bind} is not a numeric IP address; to use an interface: -d ${bind}`);
}

/** The address, if the choice names it without knowledge of the peer. */
export function fixedAddress({ bind, ibDev, gidIdx, gidFlag }: DeviceChoice): string | undefined {
  if (bind !== undefined) return bind;
  return ibDev === undefined || gidIdx === undefined ? undefined : addressOfGid(ibDev, gidIdx, gidFlag);
}

/**
 * The local address towards a peer.
 * @param reached a local address that leads to the peer
 * @param peer the peer's address or GID, 4 or 16 bytes: ours is of the same kind
 */
export function localAddress(choice: DeviceChoice, reached: string, peer: Uint8Array): string {
  const fixed = fixedAddress(choice);
  if (fixed !== undefined) return fixed;
  const { ibDev, gidIdx, gidFlag } = choice;
  const nic = ibDev === undefined ? interfaceByAddress(reached) : interfaceByName(ibDev);
  if (gidIdx !== undefined) return addressOfGid(nic.name, gidIdx, gidFlag);
  const family = peer.length === 4 ? 4 : 6;
  const isOfKind = (a: InterfaceAddress) =>
    a.family === family && a.linkLocal === (family === 6 && isLinkLocal(peer));
  if (ibDev === undefined && isIPv4(reached) === (family === 4)) return reached;
  const found = nic.addresses.find(isOfKind);
  if (found) return found.address;
  throw new RoceError('ERR_ROCE_NO_INTERFACE', `${nic.name} has no IPv${family} address of the peer's kind`, {
    errno: 'EADDRNOTAVAIL',
    attribute: 'bind',
    expected: "--bind with an address of the peer's kind",
  });
}

function addressOfGid(name: string, index: number, flag = '-g'): string {
  const gids = gidsOf(interfaceByName(name));
  const found = gids[index];
  if (found) return found.address;
  const those = gids.map(({ address }, i) => `${i} (${address})`).join(', ');
  throw new UsageError(`${flag} ${index}: ${name} has no such GID (expected ${those})`);
}
