/** The marks of a direction for the network, as text. */
import type { DirectionPath } from '../../flow/analysis.ts';
import { tunnelName } from '../../read/tunnel.ts';

const distinct = (values: readonly number[]): string =>
  [...new Set(values)].toSorted((x, y) => x - y).join(', ');

/** `vlan 5`, `vxlan 42 vlan 5`; empty without either. */
const networkName = ({ vlan, tunnel, vni }: DirectionPath): string =>
  [tunnel !== 'none' && tunnelName(tunnel, vni), vlan >= 0 && `vlan ${vlan}`].filter(Boolean).join(' ');

/** A table's cell: only what differs from a packet without marks that its neighbour sent. */
export function markText(path: DirectionPath): string {
  const { classes } = path;
  const differs = (of: (each: (typeof classes)[number]) => number, usual: number) =>
    classes.some((each) => of(each) !== usual);
  return [
    networkName(path),
    differs(({ dscp }) => dscp, 0) && `DSCP ${distinct(classes.map(({ dscp }) => dscp))}`,
    differs(({ ttl }) => ttl, 64) && `TTL ${distinct(classes.map(({ ttl }) => ttl))}`,
  ]
    .filter(Boolean)
    .join(', ');
}

/** All of it: name and value. */
export function pathRows(path: DirectionPath): [name: string, value: string][] {
  const { classes, ecn } = path;
  const pcps = classes.filter(({ pcp }) => pcp >= 0).map(({ pcp }) => pcp);
  return [
    ['Network', networkName(path) || 'untagged'],
    ['Priority (PCP)', pcps.length === 0 ? '–' : distinct(pcps)],
    ['DSCP', distinct(classes.map(({ dscp }) => dscp))],
    ['TTL', distinct(classes.map(({ ttl }) => ttl))],
    [
      'ECN',
      ecn.ect0 + ecn.ect1 + ecn.ce === 0 ? 'not capable' : `${ecn.ect0 + ecn.ect1} capable, ${ecn.ce} CE`,
    ],
  ];
}
