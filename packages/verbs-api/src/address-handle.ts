/** Address handles: where datagrams go. */
import { type AhAttr, invalid } from '@node-roce/transport';
import { gidFromIpBytes, gidToText } from '@node-roce/wire';
import { addressVector } from './address-vector.ts';
import { gidBytes, sameKind } from './connection.ts';
import { Ending } from './ending.ts';
import type { Engine, EngineFacts } from './engine/engine.ts';
import { custom, line } from './inspect.ts';
import { BYTES, checkArgument, described } from './options.ts';
import { WorkCompletion } from './work-completion.ts';

/** A destination as a program names it; absent members have the defaults of `connect`. */
export interface AddressInit {
  /** A numeric address, or a GID: of a host, or of a multicast group. */
  gid: string | Uint8Array;
  /** Index of the local GID; the first of the destination's kind unless given. */
  gidIndex?: number;
  /** 20 bits; 0. */
  flowLabel?: number;
  /** DSCP << 2 | ECN; 0. */
  trafficClass?: number;
  /** TTL, 1 … 255; 64. */
  hopLimit?: number;
  /** 0. */
  sl?: number;
}

/** The attributes of a way to a destination (`struct ibv_ah_attr`). Throws EINVAL where no local GID is of its kind. */
export function addressAttr(init: AddressInit, { gids }: EngineFacts): AhAttr {
  if (typeof init.gid !== 'string' && !(init.gid instanceof Uint8Array))
    throw invalid('gid', described(init.gid), 'an IP address, or the bytes of a GID');
  const dgid = gidBytes(init.gid);
  const sgidIndex = init.gidIndex ?? sameKind(gids, dgid, undefined);
  if (sgidIndex < 0) {
    throw invalid('gid', 'no local address is of its kind', gids.map((g) => g.address).join(', '));
  }
  const { flowLabel = 0, trafficClass = 0, hopLimit = 64, sl = 0 } = init;
  return addressVector({ gid: dgid, sgidIndex, flowLabel, trafficClass, hopLimit, sl });
}

/** Bytes before a datagram's payload in a receive: where the sender's IP header lies (IBTA annex A17.4.5.3). */
export const GRH_BYTES = 40;

/** The way back to a datagram's sender, from the 40 bytes that stand before it (ibv_init_ah_from_wc(3)). */
export function addressFromCompletion(wc: WorkCompletion, grh: Uint8Array, facts: EngineFacts): AddressInit {
  if (!(wc instanceof WorkCompletion)) throw invalid('wc', described(wc), 'a WorkCompletion');
  checkArgument('grh', grh, BYTES);
  if (!wc.hasGrh) throw invalid('wc', 'a completion without GRH', 'the completion of a UD receive');
  if (grh.length < GRH_BYTES) throw invalid('grh', `${grh.length} bytes`, `${GRH_BYTES}`);
  // Byte 0 is the version of an IPv6 header; an IPv4 header stands in the last 20 bytes, after zeros.
  const v6 = grh[0] >> 4 === 6;
  const at = v6 ? 8 : 32;
  const [source, destination] = v6
    ? [grh.slice(at, at + 16), grh.slice(at + 16, at + 32)]
    : [grh.slice(at, at + 4), grh.slice(at + 4, at + 8)];
  const gid = gidFromIpBytes(source);
  const own = gidFromIpBytes(destination);
  const ownIndex = facts.gids.findIndex((entry) => entry.gid.every((byte, i) => byte === own[i]));
  return {
    gid,
    // To a group it came: then any address of the kind has to do.
    ...(ownIndex < 0 ? {} : { gidIndex: ownIndex }),
    trafficClass: v6 ? ((grh[0] & 0xf) << 4) | (grh[1] >> 4) : grh[21],
    flowLabel: v6 ? ((grh[1] & 0xf) << 16) | (grh[2] << 8) | grh[3] : 0,
  };
}

/** A route that datagrams take (`struct ibv_ah`). Made by `pd.createAh`. */
export class AddressHandle implements AsyncDisposable {
  /** The engine's number for it. */
  readonly handle: number;
  /** As it was created, complete. */
  readonly attr: Readonly<AhAttr>;
  readonly #engine: Engine;
  readonly #ending = new Ending();

  constructor(engine: Engine, handle: number, attr: AhAttr) {
    this.#engine = engine;
    this.handle = handle;
    this.attr = attr;
  }

  /** ibv_destroy_ah(3). Requests that still name it complete with LOC_QP_OP_ERR. */
  destroy(): Promise<void> {
    return this.#ending.once(this.#engine, () => this.#engine.call('destroyAh', this.handle));
  }

  /** @internal */
  [custom](): string {
    return line('AddressHandle', {
      handle: this.handle,
      dgid: gidToText(this.attr.grh.dgid),
      sgidIndex: this.attr.grh.sgidIndex,
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.destroy();
  }
}
