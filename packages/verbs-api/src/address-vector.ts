/** The address vector of a route on Ethernet. */
import type { AhAttr } from '@node-roce/transport';

/** A way to a GID. */
export interface RouteTo {
  /** The GID that it leads to. */
  gid: Uint8Array;
  /** Index of the local GID. */
  sgidIndex: number;
  /** 20 bits. */
  flowLabel: number;
  /** DSCP << 2 | ECN. */
  trafficClass: number;
  /** TTL. */
  hopLimit: number;
  /** Service level; 0. */
  sl?: number;
}

/** The attributes of a route (`struct ibv_ah_attr`): each has a GRH, and no LIDs. */
export const addressVector = ({
  gid,
  sgidIndex,
  flowLabel,
  trafficClass,
  hopLimit,
  sl = 0,
}: RouteTo): AhAttr => ({
  grh: { dgid: gid, sgidIndex, flowLabel, trafficClass, hopLimit },
  isGlobal: true,
  dlid: 0,
  sl,
  srcPathBits: 0,
  staticRate: 0,
  portNum: 1,
});
