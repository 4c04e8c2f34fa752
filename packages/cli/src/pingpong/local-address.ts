/** Chooses the local address of `roce pingpong`: by `--bind`, by `-d` and `-g` as ibv_rc_pingpong has them, or by route. */
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
}

export function checkChoice({ bind, ibDev, gidIdx }: DeviceChoice): void {
  if (bind === undefined) return;
  if (ibDev !== undefined || gidIdx !== undefined)
    throw new UsageError('--bind names the address; -d and -g would choose another one');
  if (parseIpAddress(bind.split('%')[0]) === undefined)
    throw new UsageError(`--bind ${bind} is not a numeric IP address; to use an interface: -d ${bind}`);
}

/** The address, if the choice names it without knowledge of the peer. */
export function fixedAddress({ bind, ibDev, gidIdx }: DeviceChoice): string | undefined {
  if (bind !== undefined) return bind;
  return ibDev === undefined || gidIdx === undefined ? undefined : addressOfGid(ibDev, gidIdx);
}

/**
 * The local address towards a peer.
 * @param reached a local address that leads to the peer
 * @param peer the peer's address or GID, 4 or 16 bytes: ours is of the same kind
 */
export function localAddress(choice: DeviceChoice, reached: string, peer: Uint8Array): string {
  const fixed = fixedAddress(choice);
  if (fixed !== undefined) return fixed;
  const { ibDev, gidIdx } = choice;
  const nic = ibDev === undefined ? interfaceByAddress(reached) : interfaceByName(ibDev);
  if (gidIdx !== undefined) return addressOfGid(nic.name, gidIdx);
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

function addressOfGid(name: string, index: number): string {
  const gids = gidsOf(interfaceByName(name));
  const found = gids[index];
  if (found) return found.address;
  throw new RoceError('ERR_ROCE_NO_INTERFACE', `-g ${index}: ${name} has no such GID`, {
    errno: 'EINVAL',
    attribute: 'gidIdx',
    expected: gids.map(({ address }, i) => `${i} (${address})`).join(', '),
  });
}
